"""Who may use the API port. Keys are known by their SHA-256 only."""

import hashlib
import hmac
from collections.abc import Iterable, Sequence

from msgspec import Struct

from gateway.core.call import Header
from gateway.core.request import NORMAL
from gateway.wire.errors import BadRequest

_HEADERS = (b"authorization", b"x-api-key", b"api-key")


class Key(Struct, frozen=True):
    """A configured client key: its name, the hex SHA-256 of its value, its priority."""

    name: str
    sha256: str
    priority: int = NORMAL


ANYBODY = Key("", "")


class Keyring:
    """Without keys everybody is let in, as `ANYBODY`."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = keys

    def admit(self, headers: Iterable[Header]) -> Key:
        """The key that a request carries. Raises `BadRequest` (`unauthorized`) for none or a wrong one.

        Every key is compared, in constant time, so that timing tells nothing about them.
        """
        if not self._keys:
            return ANYBODY
        found: Key | None = None
        for name, value in headers:
            if name not in _HEADERS:
                continue
            # The scheme's name is case-insensitive (RFC 9110, section 11.1).
            presented = (value[7:] if value[:7].lower() == b"bearer " else value).strip()
            digest = hashlib.sha256(presented).hexdigest()
            for key in self._keys:
                if hmac.compare_digest(digest, key.sha256):
                    found = key
        if found is None:
            raise BadRequest(
                "A valid API key is needed: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.",
                code="unauthorized",
            )
        return found
