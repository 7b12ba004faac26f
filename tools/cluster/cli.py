"""The verbs of `python -m tools.cluster`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from tools.cluster import build, faults, images, kwok, lifecycle, packages, state, units
from tools.cluster.api import Api, is_ready
from tools.cluster.errors import ClusterError
from tools.cluster.shell import say

Verb = Callable[[argparse.Namespace], None]


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    verb: Verb = options.verb
    try:
        units.require_root()
        state.check_name(options.name)
        verb(options)
    except ClusterError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("stopped; `python -m tools.cluster down` removes what is there")
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.cluster", description="A real Kubernetes on this machine."
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    def add(name: str, verb: Verb, text: str) -> argparse.ArgumentParser:
        own = verbs.add_parser(name, help=text, description=text)
        own.add_argument("--name", default="dev", help="which cluster (default: dev)")
        own.set_defaults(verb=verb)
        return own

    add("build", _build, "build the programs and images, without starting anything")
    add("up", _up, "start a cluster; builds what is missing").add_argument(
        "--nodes", type=int, default=2, metavar="N", help="how many nodes (default: 2)"
    )
    add("down", _down, "remove a cluster and every trace of it")
    add("status", _status, "the clusters of this machine and the nodes of one")
    add("kubeconfig", _kubeconfig, "print the path of the kubeconfig file")
    add(
        "image", _image, "build this checkout's image, push it to the cluster's registry, print its name"
    ).add_argument("--learner", action="store_true", help="the one with PyTorch, of some gigabytes")
    add("load", _load, "bring an image to every node").add_argument("image", metavar="IMAGE|TAR")
    add("add-node", _add_node, "add a node")
    add("stop-node", _stop_node, "cut a node's power").add_argument("node")
    add("partition-node", _partition_node, "cut a node's cable").add_argument("node")
    add("stop-api", _stop_api, "take the API server away")
    add("heal", _heal, "undo every fault: start what was stopped, plug in what was cut off")
    gpu = add("gpu", _gpu, "make a node say that it has N GPUs")
    gpu.add_argument("node")
    gpu.add_argument("count", type=int, metavar="N")
    add("kwok", _kwok, "have exactly N simulated nodes").add_argument("count", type=int, metavar="N")
    return parser


def _build(options: argparse.Namespace) -> None:
    packages.require(packages.CLUSTER)
    print(build.build())
    images.project_image()


def _up(options: argparse.Namespace) -> None:
    cluster = lifecycle.up(options.name, options.nodes)
    say(f"export KUBECONFIG={cluster.kubeconfig}")
    say(f"export PATH={build.program('kubectl').parent}:$PATH    # a kubectl of the same version")


def _down(options: argparse.Namespace) -> None:
    begun = time.monotonic()
    there = lifecycle.down(options.name)
    say(
        f"cluster {options.name!r} is gone ({time.monotonic() - begun:.1f} s)"
        if there
        else f"there is no cluster {options.name!r}"
    )


def _status(options: argparse.Namespace) -> None:
    there = lifecycle.everywhere()
    print(f"clusters: {', '.join(there) or 'none'}")
    cluster = state.find(options.name)
    if cluster is None:
        return
    if not cluster.complete:
        print(f"{cluster.name}: is being started, or was left half-made (then `up` makes it anew)")
        return
    answers = Api(cluster).ready()
    print(f"{cluster.name}: API server at {cluster.api_host} {'answers' if answers else 'does not answer'}")
    nodes = Api(cluster).nodes() if answers else {}
    for name in cluster.nodes:
        word = faults.condition(cluster, name, is_ready(nodes.get(name)))
        gpus = f"  GPUs: {cluster.gpus[name]}" if cluster.gpus.get(name) else ""
        print(f"  {name:<10} {cluster.node_address(name):<14} {word}{gpus}")
    simulated = sum(kwok.ANNOTATION in node["metadata"].get("annotations", {}) for node in nodes.values())
    if simulated:
        print(f"  and {simulated} simulated nodes")


def _kubeconfig(options: argparse.Namespace) -> None:
    print(state.get(options.name).kubeconfig)


def _image(options: argparse.Namespace) -> None:
    print(images.push_project_image(state.get(options.name), "learner" if options.learner else "slim"))


def _load(options: argparse.Namespace) -> None:
    images.load(state.get(options.name), options.image)


def _add_node(options: argparse.Namespace) -> None:
    with state.lock(options.name):
        print(lifecycle.add_node(state.get(options.name)))


def _stop_node(options: argparse.Namespace) -> None:
    with state.lock(options.name):
        faults.stop_node(state.get(options.name), options.node)


def _partition_node(options: argparse.Namespace) -> None:
    with state.lock(options.name):
        faults.partition_node(state.get(options.name), options.node)


def _stop_api(options: argparse.Namespace) -> None:
    with state.lock(options.name):
        faults.stop_api(state.get(options.name))


def _heal(options: argparse.Namespace) -> None:
    with state.lock(options.name):
        mended = faults.heal(state.get(options.name))
    say(f"mended: {', '.join(mended) or 'no node'}")


def _gpu(options: argparse.Namespace) -> None:
    with state.lock(options.name):
        faults.set_gpus(state.get(options.name), options.node, options.count)


def _kwok(options: argparse.Namespace) -> None:
    with state.lock(options.name):
        kwok.set_count(state.get(options.name), options.count)
