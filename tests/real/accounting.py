"""A second opinion on what our layers may hold: lock and tarballs, read by other code than the build's."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

from builder.storage.store import ContentStore
from images.render import BuildContext
from images.unpacking import Plan
from provenance.layout import OciImage, open_layer

Entry = tuple[str, int, int, int, str, str]  # kind, mode, uid, gid, SHA-256 of the content, link target


@dataclass
class Expected:
    """What a directory of ours must hold, and the hashes of all its members, for what scripts place."""

    entries: dict[str, Entry] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)


def hash_of(file: IO[bytes] | None) -> str:
    assert file is not None
    found = hashlib.sha256()
    while chunk := file.read(1 << 20):
        found.update(chunk)
    return found.hexdigest()


def read_layer(image: OciImage, number: int, epoch: int) -> dict[str, Entry]:
    """A layer's entries; hard links become files of their own; every time stamp is the epoch."""
    found: dict[str, Entry] = {}
    with open_layer(image, number) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            assert member.mtime == epoch, member.name
            assert (member.uname, member.gname) == ("", "")
            assert member.name not in found
            content = hash_of(archive.extractfile(member)) if member.isreg() else ""
            if member.islnk():
                content = found[member.linkname][4]
            kind = "directory" if member.isdir() else "link" if member.issym() else "file"
            link = member.linkname if member.issym() else ""
            found[member.name] = (kind, member.mode, member.uid, member.gid, content, link)
    return found


def expected_directory(plan: Plan, store: ContentStore) -> Expected:
    """From the tarballs alone: paths, contents and modes by the rules of image-contents.md."""
    expected, top = Expected(), plan.target.lstrip("/")
    for item in plan.placed:
        below = top if item.place == "." else f"{top}/{item.place}"
        with (
            store.open(item.artifact.integrity, item.artifact.id) as file,
            tarfile.open(fileobj=file, mode="r:gz") as archive,
        ):
            for member in archive:
                parts = [part for part in member.name.split("/")[1:] if part not in ("", ".")]
                path = "/".join((below, *parts))
                if member.isdir():
                    expected.entries[path] = ("directory", 0o755, 0, 0, "", "")
                elif member.isreg():
                    content = hash_of(archive.extractfile(member))
                    mode = 0o755 if member.mode & 0o111 else 0o644
                    expected.entries[path] = ("file", mode, 0, 0, content, "")
                    expected.members.add(content)
    for link in plan.bins:
        entry = expected.entries.get(f"{top}/{link.file}")
        if entry is not None:
            expected.entries[f"{top}/{link.file}"] = ("file", 0o755, *entry[2:])
            expected.entries[f"{top}/{link.link}"] = ("link", 0o777, 0, 0, "", link.to)
    for path in list(expected.entries):
        for parent in _parents(path):
            expected.entries.setdefault(parent, ("directory", 0o755, 0, 0, "", ""))
    return expected


def expected_generated(context: BuildContext) -> dict[str, Entry]:
    """The generators, run again."""
    return {
        entry.path: (
            "directory" if entry.is_directory else "link" if entry.link else "file",
            entry.mode,
            entry.uid,
            entry.gid,
            "" if entry.content is None else hashlib.sha256(entry.content).hexdigest(),
            entry.link,
        )
        for entry in context.root
    }


def unaccounted(image: OciImage, below: int, context: BuildContext, store: ContentStore) -> list[str]:
    """Every entry above the first ``below`` layers that nothing explains, and every missing one."""
    user, group = (int(part) for part in context.image.user.split(":"))
    workspace: dict[str, Entry] = {"workspace": ("directory", 0o755, user, group, "", "")}
    wrong = _compare(read_layer(image, below, context.epoch), Expected(workspace))
    for number, plan in enumerate(context.plans, below + 1):
        # An install script may put any locked member in the place of a command, and nothing else.
        scripted = {f"{plan.target.lstrip('/')}/{link.file}" for link in plan.bins} if plan.scripts else set()
        found = read_layer(image, number, context.epoch)
        wrong += _compare(found, expected_directory(plan, store), scripted)
    found = read_layer(image, below + 1 + len(context.plans), context.epoch)
    return wrong + _compare(found, Expected(expected_generated(context)))


def _compare(
    found: dict[str, Entry], expected: Expected, scripted: set[str] | frozenset[str] = frozenset()
) -> list[str]:
    wrong = [f"missing: {path}" for path in expected.entries if path not in found]
    for path, entry in found.items():
        wanted = expected.entries.get(path)
        if wanted == entry:
            continue
        by_script = path in scripted and entry[4] in expected.members
        if not by_script or entry[:4] != ("file", 0o755, 0, 0):
            wrong.append(f"{'different' if wanted else 'extra'}: {path}")
    return wrong


def _parents(path: str) -> Iterator[str]:
    parts = path.split("/")
    for count in range(1, len(parts)):
        yield "/".join(parts[:count])
