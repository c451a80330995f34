"""Index a locked Debian package: what lies where once it is unpacked, and its records in dpkg's database."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from images.errors import StateError, VerifyFailed
from images.lock import Artifact
from images.toolchain import split_name
from provenance.audit.members import OpenArtifact
from provenance.debs import Control, DebKind, DebMember, read_control, read_data

INFO: Final = "var/lib/dpkg/info"
_SCRIPTS: Final = frozenset({"preinst", "postinst", "prerm", "postrm", "config"})


@dataclass(frozen=True, slots=True)
class Record:
    """A file of dpkg's database that follows from the package alone: mode and SHA-256.

    ``member``: whether it is a control file byte for byte; else it is the list of the package's files.
    """

    path: str
    mode: int
    content: bytes
    member: bool


@dataclass(frozen=True, slots=True)
class DebIndex:
    """One package: the members of its data, and its records."""

    artifact: Artifact
    members: tuple[DebMember, ...]
    records: tuple[Record, ...]


def index_deb(artifact: Artifact, open_artifact: OpenArtifact) -> DebIndex:
    """Read it once, from bytes that were compared with the lock. StateError when it cannot be read."""
    try:
        with open_artifact(artifact) as file:
            control = read_control(file, artifact.id)
            members = tuple(read_data(file, artifact.id))
    except VerifyFailed as broken:
        raise StateError(broken.what, where=artifact.id) from None
    return DebIndex(artifact, members, tuple(_records(artifact, control, members)))


def _records(artifact: Artifact, control: Control, members: tuple[DebMember, ...]) -> list[Record]:
    package, architecture = split_name(artifact.name)
    # Packages that may be there for several architectures at once are kept apart by name.
    stem = f"{package}:{architecture}" if control.fields.get("Multi-Arch") == "same" else package
    found = [
        Record(
            f"{INFO}/{stem}.{name}",
            0o755 if name in _SCRIPTS else 0o644,
            hashlib.sha256(content).digest(),
            True,
        )
        for name, content in control.files.items()
        if name != "control"
    ]
    found.append(Record(f"{INFO}/{stem}.list", 0o644, hashlib.sha256(_list(members)).digest(), False))
    return found


def _list(members: tuple[DebMember, ...]) -> bytes:
    """As dpkg writes it: in the package's order, symbolic links last because they are made last."""
    links = [member for member in members if member.kind is DebKind.LINK]
    others = [member for member in members if member.kind is not DebKind.LINK]
    lines = (f"/{member.path}" if member.path else "/." for member in (*others, *links))
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
