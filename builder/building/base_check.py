"""Read a base image's layers for what the plan needs of it: programs, init, accounts, free places."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from images.accounts import MAX_ACCOUNT_BYTES, Accounts
from images.basefacts import (
    BUILD_PROGRAMS,
    INITS,
    LOADERS,
    RUN_PROGRAMS,
    SHELLS,
    BaseFacts,
    DebianFacts,
    check_base_settings,
)
from images.errors import UsageError, VerifyFailed
from images.oci import OciImage, Platform
from provenance.layout import open_layer
from provenance.stricttar import StrictTar

# Where programs are looked for; an init may also lie where only other programs start it.
_PROGRAM_DIRECTORIES: Final = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
_INIT_DIRECTORIES: Final = (*_PROGRAM_DIRECTORIES, "usr/libexec/podman")
_BUILD_DIRECTORIES: Final = ("usr/bin", "bin")  # the PATH of the build's own steps
# Ours alone: what a base had there would be in the image without anybody having planned it.
_RESERVED: Final = (
    "etc/agent-image.json",
    "opt/agents",
    "opt/archives",
    "opt/builder",
    "opt/mcp",
    "opt/node",
    "opt/skills",
    "opt/tools",
    "source",
    "usr/local/bin/claude",
    "usr/local/bin/node",
    "usr/local/bin/opencode",
    "usr/local/bin/pi",
    "workspace",
)
# Our layers hold these as directories; a link there would be replaced, and what is behind it hidden.
_DIRECTORIES: Final = ("etc", "home", "opt", "usr", "usr/local", "usr/local/bin")
_STATUS: Final = "var/lib/dpkg/status"
_OS_RELEASE: Final = ("etc/os-release", "usr/lib/os-release")
# Files whose bytes are kept, and how many at most.
_KEPT: Final = {
    "etc/passwd": MAX_ACCOUNT_BYTES,
    "etc/group": MAX_ACCOUNT_BYTES,
    _STATUS: 64 << 20,
    **dict.fromkeys(_OS_RELEASE, 1 << 16),
}
_WORD: Final = re.compile(r'(ID|VERSION_CODENAME)=(["\']?)([a-z0-9._-]{1,60})\2', re.ASCII)
_FILES: Final = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.LNKTYPE)
_MAX_LINKS: Final = 40
_MAX_ENTRIES: Final = 2_000_000


@dataclass(slots=True)
class _Tree:
    """The merged file system of the layers read so far: what lies at each path, and a few files' bytes."""

    entries: dict[str, tuple[bytes, str, bool]] = field(default_factory=dict)  # type, link target, executable
    contents: dict[str, bytes] = field(default_factory=dict)
    directories: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # mode, uid, gid

    def remove_below(self, path: str) -> None:
        prefix = f"{path}/" if path else ""
        for name in [name for name in self.entries if name.startswith(prefix)]:
            del self.entries[name]

    def resolve(self, path: str) -> str | None:
        """The path with every symbolic link followed; None when it leads nowhere."""
        links = 0
        parts, done = path.split("/"), ""
        while parts:
            part = parts.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            here = f"{done}/{part}" if done else part
            kind, target, _ = self.entries.get(here, (b"", "", False))
            if kind == tarfile.SYMTYPE:
                links += 1
                if links > _MAX_LINKS:
                    return None
                parts = target.split("/") + parts
                done = "" if target.startswith("/") else done
            elif kind == b"":
                return None
            else:
                done = here
        return done

    def find_program(self, name: str, directories: tuple[str, ...]) -> str | None:
        """The absolute path under which a program is found, as written, not resolved."""
        for directory in directories:
            found = self.resolve(f"{directory}/{name}")
            if found is not None and self.entries[found][2]:
                return f"/{directory}/{name}"
        return None


def read_base(base: OciImage) -> BaseFacts:
    """The facts of a base. Raises UsageError naming the first thing that keeps it from carrying the plan."""
    check_base_settings(base.settings)
    tree = _Tree()
    for number in range(len(base.manifest.layers)):
        with open_layer(base, number) as stream:
            _read_layer(stream, tree, f"layer {number} of the base")
            while stream.read(1 << 20):  # to the end, where its hashes are checked
                pass
    _check_places(tree)
    missing = [name for name in RUN_PROGRAMS if not tree.find_program(name, _PROGRAM_DIRECTORIES)]
    missing += [
        name
        for name in BUILD_PROGRAMS
        if name not in missing and not tree.find_program(name, _BUILD_DIRECTORIES)
    ]
    if not tree.find_program("env", ("usr/bin",)):
        missing.append("/usr/bin/env")
    if not _has_glibc(tree, base.platform):
        missing.append(f"glibc's loader /{LOADERS.get(base.platform, 'of no known platform')}")
    init = next(filter(None, (tree.find_program(name, _INIT_DIRECTORIES) for name in INITS)), None)
    if init is None:
        missing.append(f"an init ({', '.join(INITS)})")
    if missing or init is None:
        raise UsageError(
            f"the base lacks {', '.join(missing)}",
            where="image.base",
            hint="choose a base that has them, such as the one that this makes: builder bootstrap",
        )
    shells = (tree.find_program(name, _PROGRAM_DIRECTORIES) for name in SHELLS)
    return BaseFacts(
        accounts=Accounts(_account_file(tree, "etc/passwd"), _account_file(tree, "etc/group")),
        init=init,
        shell=next(filter(None, shells)),
        settings=base.settings,
        debian=_debian(tree),
    )


def _has_glibc(tree: _Tree, platform: Platform) -> bool:
    """A loader of musl under glibc's name does not load what is built for glibc."""
    found = tree.resolve(LOADERS.get(platform, ""))
    return (
        found is not None
        and found in tree.entries
        and tree.entries[found][0] in _FILES
        and "musl" not in found
    )


def _debian(tree: _Tree) -> DebianFacts | None:
    """What dpkg and os-release say; None when the base has no dpkg, or its record cannot be read."""
    status = tree.contents.get(_STATUS, b"")
    if not status or not tree.find_program("dpkg", _PROGRAM_DIRECTORIES):
        return None
    release = next((tree.contents[path] for path in _OS_RELEASE if path in tree.contents), b"")
    found = (_WORD.fullmatch(line) for line in release.decode("utf-8", "replace").splitlines())
    words = {match[1]: match[3] for match in found if match is not None}
    return DebianFacts(
        status=status,
        distribution=words.get("ID", ""),
        codename=words.get("VERSION_CODENAME", ""),
        aliases={
            path: target.strip("/")
            for path, (kind, target, _) in tree.entries.items()
            if kind == tarfile.SYMTYPE and "/" not in path
        },
        directories={
            path: tree.directories.get(path, (0o755, 0, 0))
            for path, entry in tree.entries.items()
            if entry[0] == tarfile.DIRTYPE
        },
    )


def _account_file(tree: _Tree, path: str) -> bytes:
    if path not in tree.contents:
        raise UsageError(
            f"the base has no regular file /{path} of at most {MAX_ACCOUNT_BYTES} bytes", where="image.base"
        )
    return tree.contents[path]


def _check_places(tree: _Tree) -> None:
    for path in _RESERVED:
        if path in tree.entries:
            raise UsageError(
                f"the base already has /{path}, which belongs to this program",
                where="image.base",
                hint="choose a base that is not itself an image of this program",
            )
    for path in _DIRECTORIES:
        if path in tree.entries and tree.entries[path][0] != tarfile.DIRTYPE:
            raise UsageError(f"/{path} of the base is not a directory", where="image.base")


def _read_layer(stream: BinaryIO, tree: _Tree, where: str) -> None:
    try:
        with StrictTar.open(fileobj=stream, mode="r|") as archive:
            for member, path in _members(archive):
                _apply(archive, member, path, tree)
                if len(tree.entries) > _MAX_ENTRIES:
                    raise UsageError(f"more than {_MAX_ENTRIES} files", where="image.base")
    except (tarfile.TarError, ValueError, EOFError) as broken:
        raise VerifyFailed(f"not a readable tar: {broken}", where=where) from None


def _members(archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, str]]:
    for member in archive:
        path = "/".join(part for part in member.name.split("/") if part not in ("", "."))
        if path:
            yield member, path
        archive.members.clear()  # type: ignore[attr-defined]  # tarfile would keep every header in memory


def _apply(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, tree: _Tree) -> None:
    directory, _, name = path.rpartition("/")
    if name == ".wh..wh..opq":
        tree.remove_below(directory)
        return
    if name.startswith(".wh."):
        gone = f"{directory}/{name[4:]}" if directory else name[4:]
        tree.entries.pop(gone, None)
        tree.contents.pop(gone, None)
        tree.remove_below(gone)
        return
    above = directory
    while above and above not in tree.entries:  # a tar may leave its directories out
        tree.entries[above] = (tarfile.DIRTYPE, "", False)
        above = above.rpartition("/")[0]
    tree.contents.pop(path, None)
    if member.isreg() and member.size <= _KEPT.get(path, -1):
        file = archive.extractfile(member)
        tree.contents[path] = file.read() if file else b""
    if not member.isdir() and tree.entries.get(path, (b"",))[0] == tarfile.DIRTYPE:
        tree.remove_below(path)
    kind = tarfile.DIRTYPE if member.isdir() else member.type
    if member.isdir():
        tree.directories[path] = (member.mode & 0o7777, member.uid, member.gid)
    executable = not member.isdir() and not member.issym() and bool(member.mode & 0o111)
    tree.entries[path] = (kind, member.linkname if member.issym() else "", executable)
