"""What our layers must hold: each entry, from plan, members of locked artifacts and generators."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from images.digests import Integrity
from images.render import BuildContext
from images.unpacking import Placed, Plan, Unpack
from images.wheels import wheel_place
from provenance.audit.layertar import Kind
from provenance.audit.members import Member
from provenance.audit.report import Origin

# Index of each artifact's members, by its integrity: a name for the bytes alone.
MemberIndex = Mapping[Integrity, tuple[Member, ...]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One entry that must be there. ``source``: for people, whose it is."""

    kind: Kind
    mode: int
    uid: int
    gid: int
    link: str
    content: bytes
    origin: Origin
    source: str


@dataclass(frozen=True, slots=True)
class Source:
    """A member of an artifact, named for people."""

    artifact: str
    member: str


@dataclass(slots=True)
class WantedLayer:
    """All entries of one layer by path.

    ``scripted``: where an install script may put a file, and whose script; ``movable``: the files it may
    take, by hash.
    """

    entries: dict[str, Wanted] = field(default_factory=dict)
    scripted: dict[str, str] = field(default_factory=dict)
    movable: dict[bytes, Source] = field(default_factory=dict)


def wanted_layers(context: BuildContext, index: MemberIndex) -> tuple[WantedLayer, ...]:
    """Our layers upwards, as :class:`BuildContext` orders them, without the toolchain below them."""
    return (
        _working_directory(context),
        *(_unpacked(plan, index) for plan in context.plans),
        _generated(context),
    )


def _working_directory(context: BuildContext) -> WantedLayer:
    uid, _, gid = context.image.user.partition(":")
    entry = Wanted(
        Kind.DIRECTORY, 0o755, int(uid), int(gid), "", b"", Origin.WORKING_DIRECTORY, "the working directory"
    )
    return WantedLayer({context.image.working_dir.strip("/"): entry})


def _generated(context: BuildContext) -> WantedLayer:
    """The generators were run again to make ``context``; here is what they say."""
    layer = WantedLayer()
    for entry in context.root:
        kind = Kind.DIRECTORY if entry.is_directory else Kind.LINK if entry.link else Kind.FILE
        content = b"" if entry.content is None else hashlib.sha256(entry.content).digest()
        layer.entries[entry.path] = Wanted(
            kind, entry.mode, entry.uid, entry.gid, entry.link, content, Origin.GENERATED, "the generator"
        )
    return layer


def _unpacked(plan: Plan, index: MemberIndex) -> WantedLayer:
    """The rules of docs/explanation/image-contents.md: later packages over earlier ones, then links."""
    layer, top = WantedLayer(), plan.target.strip("/")
    for item in plan.placed:
        if item.how is Unpack.WHEEL:
            layer.entries.update(_wheel(top, item, index[item.artifact.integrity]))
        else:
            _add_tar(layer, top, item, index[item.artifact.integrity])
    for link in plan.bins:
        file = layer.entries.get(f"{top}/{link.file}")
        if file is not None and file.kind is Kind.FILE:
            layer.entries[f"{top}/{link.file}"] = _file(True, file.content, file.source)
            layer.entries[f"{top}/{link.link}"] = Wanted(
                Kind.LINK, 0o777, 0, 0, link.to, b"", Origin.COMMAND_LINK, f"the command {link.name}"
            )
    for path in list(layer.entries):
        for parent in parents_of(path):
            layer.entries.setdefault(parent, _DIRECTORY)
    for run in plan.scripts:
        for _, name in run.artifact.bins:
            layer.scripted[f"{top}/{run.place}/{name}"] = run.artifact.id
    return layer


def _add_tar(layer: WantedLayer, top: str, item: Placed, members: tuple[Member, ...]) -> None:
    below = top if item.place == "." else f"{top}/{item.place}"
    for member in members:
        layer.entries[f"{below}/{member.path}"] = _member(member, item.artifact.id)
        if member.content:
            layer.movable.setdefault(member.content, Source(item.artifact.id, member.path))
    layer.entries.setdefault(below, _DIRECTORY)


def _wheel(top: str, item: Placed, members: tuple[Member, ...]) -> Iterator[tuple[str, Wanted]]:
    """A wheel's files where a virtual environment has them; what nobody needs is left out."""
    for member in members:
        placed = wheel_place(member.path, item.place, item.artifact.name)
        if placed is not None:
            path, command = placed
            wanted = _file(member.executable or command, member.content, item.artifact.id)
            yield f"{top}/{path}", wanted


_DIRECTORY = Wanted(Kind.DIRECTORY, 0o755, 0, 0, "", b"", Origin.DIRECTORY, "a directory")


def _member(member: Member, artifact: str) -> Wanted:
    return _file(member.executable, member.content, artifact) if member.content else _DIRECTORY


def _file(executable: bool, content: bytes, source: str) -> Wanted:
    return Wanted(Kind.FILE, 0o755 if executable else 0o644, 0, 0, "", content, Origin.ARTIFACT, source)


def parents_of(path: str) -> Iterator[str]:
    """Every directory above a path, the outermost first."""
    parts = path.split("/")
    for count in range(1, len(parts)):
        yield "/".join(parts[:count])
