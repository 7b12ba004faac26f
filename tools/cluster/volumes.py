"""Volumes for claims: a folder that every node sees and any user may write to, as on a network file system.

A pod on Callsheet is not root, and Kubernetes' own provisioner of host folders makes them for root alone. This small
one runs beside the control plane: `python -m tools.cluster.volumes CLUSTER`.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from tools.cluster import state
from tools.cluster.api import Api, Object
from tools.cluster.errors import ClusterError
from tools.cluster.shell import say
from tools.cluster.state import Cluster
from tools.cluster.units import Part
from tools.cluster.versions import HERE

CLASS = "standard"
PROVISIONER = "callsheet.dev/shared-folder"
EVERY_S = 0.5
_CLAIMS = "/api/v1/persistentvolumeclaims"
_VOLUMES = "/api/v1/persistentvolumes"
_BY = "pv.kubernetes.io/provisioned-by"


def storage_class() -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
    }


def part(cluster: Cluster) -> Part:
    argv = [sys.executable, "-m", "tools.cluster.volumes", cluster.name]
    return Part("volumes", argv, needs=[str(cluster.ready_file)], env={"PYTHONPATH": str(HERE.parent.parent)})


def folders(cluster: Cluster) -> Path:
    return cluster.folder / "volumes"


def provide(api: Api, place: Path) -> None:
    """One round: a volume for each claim that waits for one, and an end to each whose claim is gone."""
    for claim in api.call("GET", _CLAIMS)["items"]:
        spec = claim["spec"]
        if spec.get("storageClassName") == CLASS and not spec.get("volumeName"):
            _make(api, claim, place)
    for volume in api.call("GET", _VOLUMES)["items"]:
        ours = volume["metadata"].get("annotations", {}).get(_BY) == PROVISIONER
        if ours and volume.get("status", {}).get("phase") == "Released":
            api.delete(f"{_VOLUMES}/{volume['metadata']['name']}")
            shutil.rmtree(place / volume["metadata"]["name"], ignore_errors=True)


def _make(api: Api, claim: Object, place: Path) -> None:
    meta, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{meta['uid']}"
    folder = place / name
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    owner = {key: meta[key] for key in ("name", "namespace", "uid")}
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **owner},
        },
    }
    api.apply(f"{_VOLUMES}/{name}", body)


def main() -> None:
    cluster = state.get(sys.argv[1])
    api = Api(cluster)
    while True:
        try:
            provide(api, folders(cluster))
        except ClusterError as error:
            say(f"{time.strftime('%H:%M:%S')} {error}")
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main()
