"""The key that logins are encrypted with, in the person's own keyring: by the Secret Service of the session.

The one importer of ``secretstorage``. A machine without a desktop has such a service where somebody starts
one; where nobody answers, :func:`find_keyring` says so, and who keeps a login then says that it is plain.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final, Protocol

from images.credentials import Secret
from images.errors import KeyUnusable

if TYPE_CHECKING:
    from secretstorage.collection import Collection

KEY_BYTES: Final = 32
LABEL: Final = "agent-image-builder: logins of agents"
ATTRIBUTES: Final = {"application": "agent-image-builder", "what": "logins-1"}
_UNLOCK: Final = "unlock the keyring of your session, or: builder login AGENT --unencrypted"


class Keyring(Protocol):
    """Where the key is. Both raise KeyUnusable where the keyring is locked or does not answer."""

    def key(self) -> Secret | None:
        """The key; None when it has none of ours."""

    def make_key(self) -> Secret:
        """The key, made if there is none."""


def find_keyring(bus: str) -> Keyring | None:
    """Who answers for secrets on this session bus (an address as D-Bus writes it); None for nobody.

    ``bus``: empty where the session has none.
    """
    if not bus:
        return None
    found = _SecretService(bus)
    return found if found.is_there() else None


class _SecretService:
    """A connection for each question: nothing stays open while a launch runs for hours."""

    def __init__(self, bus: str) -> None:
        self._bus = bus

    def is_there(self) -> bool:
        """Whether somebody keeps secrets there, and keeps them on a disk."""
        with contextlib.suppress(KeyUnusable), self._collection():
            return True
        return False

    def key(self) -> Secret | None:
        with self._collection() as collection, _as_unusable():
            _need_unlocked(collection)
            for item in collection.search_items(dict(ATTRIBUTES)):
                value: bytes = item.get_secret()
                if len(value) == KEY_BYTES:
                    return Secret(value)
        return None

    def make_key(self) -> Secret:
        found = self.key()
        if found is not None:
            return found
        value = secrets.token_bytes(KEY_BYTES)
        with self._collection() as collection, _as_unusable():
            collection.create_item(LABEL, dict(ATTRIBUTES), value, replace=True)
        return Secret(value)

    @contextlib.contextmanager
    def _collection(self) -> Iterator[Collection]:
        """The default one: others may be forgotten when the session ends."""
        from jeepney.io.blocking import open_dbus_connection  # noqa: PLC0415  (most launches need none)
        from secretstorage import get_collection_by_alias  # noqa: PLC0415

        with _as_unusable():
            connection = open_dbus_connection(bus=self._bus)
        with closing(connection):
            with _as_unusable():
                collection = get_collection_by_alias(connection, "default")
            yield collection


def _need_unlocked(collection: Collection) -> None:
    if collection.is_locked():
        raise KeyUnusable("the keyring is locked", where="keyring", hint=_UNLOCK)


@contextlib.contextmanager
def _as_unusable() -> Iterator[None]:
    """What a library, a bus and a service have to say when they do not serve."""
    from jeepney import DBusErrorResponse  # noqa: PLC0415
    from secretstorage.exceptions import SecretStorageException  # noqa: PLC0415

    try:
        yield
    except (SecretStorageException, DBusErrorResponse, OSError, RuntimeError, ValueError) as broken:
        kind = type(broken).__name__
        raise KeyUnusable(f"the keyring does not answer: {kind}", where="keyring", hint=_UNLOCK) from None
