"""Why a replica waits or ended, in one plain sentence. Pure: from pods and events to text."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from typing import Any

from callsheet import contract
from callsheet.backends.kubernetes.client.errors import explain_limit

Object = dict[str, Any]

_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_NOT_STARTED = ("StartError", "ContainerCannotRun")
_NODES = re.compile(r"^\d+/(?P<all>\d+) nodes are available: (?P<why>.*?)\.(?:\s|$)", re.DOTALL)
_PART = re.compile(r"^(?P<count>\d+) (?P<what>.+)$", re.DOTALL)
_TAINT = re.compile(r"untolerated taint(?:\(s\))? ?(?:\{(?P<taint>[^}]*)\})?")
_CLAIM = re.compile(r'persistentvolumeclaim "(?P<name>[^"]+)" not found')


def waiting(pod: Object, events: Sequence[Object] = ()) -> str:
    """Why a pod is not ready; empty if no reason is known."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return unschedulable(condition.get("message", ""), pod)
    containers = containers_of(status)
    for container in containers:
        if reason := _waiting_container(container):
            return reason
    blocked = [event for event in _about(uid(pod), events) if event.get("reason", "").startswith("Failed")]
    if status.get("phase") == "Pending" and blocked:
        return shorten(blocked[-1].get("message", ""))
    if status.get("phase") == "Pending":
        return "its containers are being created" if containers else "it is waiting for a node"
    if status.get("phase") == "Running" and _node_is_lost(status):
        return f"its node {pod['spec'].get('nodeName', '')} does not answer"
    unready = [container["name"] for container in containers if _runs(container) and not container["ready"]]
    if unready:
        which = f"{unready[0]}: " if len(containers) > 1 else ""
        return f"{which}its readiness probe has not passed yet"
    return ""


def unschedulable(message: str, pod: Object) -> str:
    """The scheduler's message as a sentence."""
    claim = _CLAIM.search(message)
    if claim:
        return f"there is no persistent volume claim {claim['name']!r} in its namespace"
    if "unbound immediate PersistentVolumeClaims" in message:
        claims = ", ".join(_claims(pod))
        return (
            f"its volume claim {claims} is not bound: no volume fits and no storage class makes one"
            if claims
            else "its volume claim is not bound"
        )
    nodes = _NODES.match(message)
    if not nodes:
        return f"no node fits: {shorten(message)}" if message else "it is waiting for a node"
    parts = [part for part in map(_PART.match, nodes["why"].split(", ")) if part]
    reasons = [(int(part["count"]), _mismatch(part["what"])) for part in parts]
    gpu = _gpus(pod)
    if reasons and gpu and all("GPU" in reason for _, reason in reasons):
        wanted = "a GPU" if gpu == 1 else f"{gpu} GPUs"
        return f"no node has {wanted} free for it ({nodes['all']} nodes checked)"
    if not reasons:
        return f"no node fits: {shorten(nodes['why'])}"
    shown = "; ".join(f"{count} {reason}" for count, reason in reasons)
    return f"no node fits; of {nodes['all']}: {shown}"


def _mismatch(what: str) -> str:
    if what.startswith("Insufficient "):
        resource = what.removeprefix("Insufficient ")
        return (
            "without a free GPU" if resource == contract.GPU_RESOURCE else f"with too little free {resource}"
        )
    taint = _TAINT.search(what)
    if taint:
        return f"with a taint it does not tolerate ({(taint['taint'] or '').strip(': ') or 'unnamed'})"
    if "node affinity/selector" in what or "node selector" in what:
        return "not matching its nodeSelector or affinity"
    if "were unschedulable" in what:
        return "closed to new pods"
    if "pod anti-affinity" in what or "pod affinity" in what:
        return "not matching its pod affinity rules"
    if "volume node affinity" in what:
        return "from which its volume cannot be reached"
    return what.replace("node(s) ", "")


def _waiting_container(container: Object) -> str:
    state = (container.get("state") or {}).get("waiting") or {}
    reason, message = state.get("reason", ""), state.get("message", "")
    if reason in _IMAGE:
        image = container["image"]
        return f"the image {image!r} cannot be pulled: {_pull_error(reason, message)}{_image_hint(image)}"
    if reason == "CrashLoopBackOff":
        return f"{container['name']} keeps ending ({ended(container)}) and is restarted after a delay"
    if reason in _CONFIG:
        return f"{container['name']} cannot be started: {shorten(message)}"
    return ""


def _pull_error(reason: str, message: str) -> str:
    low = message.lower()
    if reason == "InvalidImageName":
        return "that is not the name of an image"
    if reason == "ErrImageNeverPull":
        return "it is not on the node and its imagePullPolicy is Never"
    for words, reason_text in (
        (("unauthorized", "authentication", "denied", "forbidden"), "the registry wants credentials (see imagePullSecrets)"),
        (("not found", "manifest unknown", "does not exist"), "the registry does not have it"),
        (("no such host", "dial tcp", "timeout", "connection refused", "eof"), "its registry does not answer"),
    ):  # fmt: skip
        if any(word in low for word in words):
            return reason_text
    return shorten(message) or "the node gave no reason"


def _image_hint(image: str) -> str:
    """Our own images are in no registry until somebody pushes them."""
    ours = image.rpartition("/")[2].partition(":")[0] in (contract.IMAGE, contract.LEARNER_IMAGE)
    return "; how to build it and push it to your registry: docs/how-to/images.md" if ours else ""


def ended(container: Object, limit: str = "") -> str:
    """How a container last ended."""
    state = terminated(container)
    if not state:
        return "for an unknown reason"
    code = int(state.get("exitCode", 0))
    reason = state.get("reason", "")
    if reason == "OOMKilled":
        return f"killed for using more memory than its limit{f' of {limit}' if limit else ''}"
    if reason in _NOT_STARTED:
        return f"its program could not be started: {_start_error(state.get('message', ''))}"
    if code > 128:
        try:
            return f"killed by {signal.Signals(code - 128).name}"
        except ValueError:
            return f"exit code {code}"
    return f"exit code {code}"


def _start_error(message: str) -> str:
    match = re.search(r'exec: \\?"(?P<name>[^"\\]+)\\?": (?P<why>[^"\n]+)', message)
    return f"{match['name']}: {match['why'].split(':')[0].strip()}" if match else shorten(message)


def terminated(container: Object) -> Object:
    """How the container ended now or the last time; empty if it never did."""
    for key in ("state", "lastState"):
        state: Object | None = (container.get(key) or {}).get("terminated")
        if state:
            return state
    return {}


def exit_code(state: Object) -> int:
    """The exit code of a container that has ended; as on a laptop when its program could not even be started."""
    return (
        contract.EXIT_CANNOT_START if state.get("reason") in _NOT_STARTED else int(state.get("exitCode", 0))
    )


def cannot_create(events: Iterable[Object], owner: str) -> str:
    """Why a Job or StatefulSet cannot create its pods."""
    blocked = [event for event in _about(owner, events) if event.get("reason") == "FailedCreate"]
    if not blocked:
        return ""
    newest = max(blocked, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
    message = newest.get("message", "")
    return explain_limit(message) or shorten(message)


def _about(owner: str, events: Iterable[Object]) -> list[Object]:
    return [event for event in events if (event.get("involvedObject") or {}).get("uid") == owner]


def containers_of(status: Object) -> list[Object]:
    """Statuses of all containers, sidecars last."""
    return [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]


def uid(item: Object) -> str:
    """The object's uid."""
    return str(item["metadata"].get("uid", ""))


def shorten(text: str, length: int = 200) -> str:
    """One line of bounded length."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else f"{flat[: length - 1]}…"


def _node_is_lost(status: Object) -> bool:
    """The cluster marks a pod as not ready when its node has been silent for a while."""
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    ready, containers = conditions.get("Ready", {}), conditions.get("ContainersReady", {})
    return bool(ready.get("status") == "False" and containers.get("status") == "True")


def _runs(container: Object) -> bool:
    return "running" in (container.get("state") or {})


def _gpus(pod: Object) -> int:
    limits = [c.get("resources", {}).get("limits", {}) for c in pod.get("spec", {}).get("containers", [])]
    return sum(int(limit.get(contract.GPU_RESOURCE, 0)) for limit in limits)


def _claims(pod: Object) -> list[str]:
    volumes = pod.get("spec", {}).get("volumes", [])
    return [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]
