"""Messages between a parameter server and its readers.

A reader fetches ("send me anything newer than this, now or once it exists") or watches ("notify me once when there is
something newer"). So polling costs no message while nothing is new, and readers are not notified of every version.
"""

from __future__ import annotations

from typing import Final

import msgspec

from callsheet.runtime.link.protocol import Integer, Natural, decode

SERVICE: Final = "parameters"

FETCH: Final = 1
WATCH: Final = 2
SNAPSHOT: Final = 3
"""The payload: the schema (`Header.sequence` bytes), then the arrays from the next multiple of 64."""
NOTICE: Final = 4

NO_VERSION: Final = -1
"""The version before the first."""
MAX_VERSION: Final = (1 << 63) - 1


class Version(msgspec.Struct, array_like=True, frozen=True):
    """A version of the parameters. It grows during one server's lifetime; the next server may start anywhere."""

    incarnation: Natural = 0
    """The server's incarnation; 0 where it does not matter."""
    number: Integer = NO_VERSION

    def newer_than(self, other: Version) -> bool:
        """Whether a reader that has `other` wants this one."""
        if self.number == NO_VERSION:
            return False
        if other.incarnation and other.incarnation != self.incarnation:
            return True
        return self.number > other.number


_DECODER = msgspec.msgpack.Decoder(Version)
encode = msgspec.msgpack.Encoder().encode


def decode_version(body: bytes) -> Version:
    """Decode a version."""
    return decode(_DECODER, body, "a version")
