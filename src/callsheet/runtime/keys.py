"""The run's secret and the keys derived from it. Only processes of the run have it."""

from __future__ import annotations

import hashlib
import hmac
import os
from functools import cached_property

import zmq

from callsheet.errors import UserError

FILE = "run.key"
SIZE = 32


class Keys:
    """Key pairs of a run's listeners and links. They are never printed."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != SIZE:
            raise UserError(
                f"a run's key has {SIZE} bytes, this one has {len(secret)}",
                fix="use the file that the run created",
            )
        self._secret = secret

    @staticmethod
    def load(folder: str) -> Keys:
        """Load the key from a folder (`CALLSHEET_KEYS`)."""
        path = os.path.join(folder, FILE)
        try:
            with open(path, "rb") as file:
                return Keys(file.read(SIZE + 1))
        except OSError as error:
            raise UserError(
                f"the run's key {path} cannot be read: {error.strerror}",
                fix="the key folder belongs to the run's owner; pass plaintext=True to run without encryption",
            ) from None

    def derive(self, purpose: str) -> bytes:
        """A key for one purpose; it reveals nothing about the others."""
        return hmac.digest(self._secret, b"callsheet " + purpose.encode(), hashlib.sha256)

    @cached_property
    def listener(self) -> tuple[bytes, bytes]:
        """Public and secret key of those that bind, in ZeroMQ's encoding (Z85)."""
        return _pair(self.derive("listener"))

    @cached_property
    def link(self) -> tuple[bytes, bytes]:
        """Public and secret key of those that connect."""
        return _pair(self.derive("link"))

    def __repr__(self) -> str:
        return "Keys(...)"


def _pair(secret: bytes) -> tuple[bytes, bytes]:
    from zmq.utils import z85

    text = z85.encode(secret)
    return zmq.curve_public(text), text
