"""One interface to results and checkpoints in a folder, S3, Google Cloud Storage or Azure.

store = open_store("s3://bucket/prefix")
store.put("notes.txt", b"...")
writer = claim(store.sub("checkpoints"))
with writer.write_set("step-120", info={"step": 120}) as parts:
    parts.put("model.safetensors", data)
latest(store.sub("checkpoints")).read("model.safetensors")
"""

from callsheet.store.backend import ObjectInfo
from callsheet.store.errors import (
    BadSet,
    Denied,
    DiskFull,
    Fenced,
    NoBucket,
    NoCredentials,
    NotFound,
    Unreachable,
    WrongCredentials,
)
from callsheet.store.set_reader import StoredSet, all_sets, latest
from callsheet.store.set_writer import PartWriter, SetWriter, claim
from callsheet.store.store import Store, open_store

__all__ = [
    "BadSet",
    "Denied",
    "DiskFull",
    "ObjectInfo",
    "Fenced",
    "NoBucket",
    "NoCredentials",
    "NotFound",
    "PartWriter",
    "SetWriter",
    "Store",
    "StoredSet",
    "Unreachable",
    "WrongCredentials",
    "all_sets",
    "claim",
    "latest",
    "open_store",
]
