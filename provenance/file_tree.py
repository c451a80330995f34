"""What a file system holds at each path: merged from an image's layers, or as somebody packed all of it."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO, Final, TypeAlias

from images.errors import VerifyFailed
from images.oci import OciImage
from provenance.layout import open_layer
from provenance.stricttar import StrictTar

MAX_NODES: Final = 2_000_000
_CHUNK: Final = 1 << 20
_OPAQUE: Final = ".wh..wh..opq"
_GONE: Final = ".wh."
_KINDS: Final = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.DIRTYPE: "directory",
    tarfile.SYMTYPE: "symbolic link",
    tarfile.CHRTYPE: "character device",
    tarfile.BLKTYPE: "block device",
    tarfile.FIFOTYPE: "pipe",
}


@dataclass(frozen=True, slots=True)
class Node:
    """What lies at one path. ``mode``: the permission bits. ``content``: SHA-256 of a file's bytes in
    hexadecimal, else empty. ``link``: where a symbolic link leads. A hard link is the file that it names.

    Times are left out: who mounts something below a directory changes its time.
    """

    kind: str
    mode: int
    uid: int
    gid: int
    size: int = 0
    content: str = ""
    link: str = ""


FileTree: TypeAlias = dict[str, Node]  # path, without slashes at its ends -> what lies there
_UNSAID: Final = Node("directory", 0o755, 0, 0)  # a directory that a tar leaves out


def image_tree(image: OciImage) -> FileTree:
    """All layers merged, each checked against its hashes. VerifyFailed: changed, or not a readable tar."""
    tree: FileTree = {}
    for number in range(len(image.manifest.layers)):
        where = f"layer {number}"
        with open_layer(image, number) as stream:
            _merge(tree, _members(stream, tree, where), where)
            while stream.read(_CHUNK):  # to the end, where its hashes are checked
                pass
    return tree


def packed_tree(stream: BinaryIO, where: str) -> FileTree:
    """One tar of a whole file system, in which no name means that another is gone. VerifyFailed."""
    tree: FileTree = {}
    seen: set[str] = set()
    for path, node in _members(stream, tree, where):
        if path in seen:
            raise VerifyFailed(f"two entries for {path[:200]!r}", where=where)
        seen.add(path)
        _place(tree, path, node, where)
    return tree


def _members(stream: BinaryIO, tree: FileTree, where: str) -> Iterator[tuple[str, Node]]:
    """Each entry but the root's. What the tree holds by then is where a hard link's file is looked for."""
    try:
        with StrictTar.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                path = _path_of(member)
                if path:
                    yield path, _node(archive, member, tree, where)
                archive.members.clear()  # type: ignore[attr-defined]  # tarfile would keep every header
    except (tarfile.TarError, ValueError, EOFError) as broken:
        raise VerifyFailed(f"not a readable tar: {broken}", where=where) from None


def _path_of(member: tarfile.TarInfo) -> str:
    path = _plain(member.name)
    if not path and not member.isdir():
        raise ValueError("a root that is no directory")
    return path


def _plain(name: str) -> str:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError("a name with '..'")
    return "/".join(parts)


def _node(archive: tarfile.TarFile, member: tarfile.TarInfo, tree: FileTree, where: str) -> Node:
    if member.islnk():
        found = tree.get(_plain(member.linkname))
        if found is None or found.kind == "directory":
            raise VerifyFailed(f"{member.name[:200]!r} is a hard link to no file", where=where)
        return found
    kind = _KINDS.get(member.type)
    if kind is None:
        raise VerifyFailed(f"{member.name[:200]!r} is of the unknown type {member.type!r}", where=where)
    node = Node(kind, member.mode & 0o7777, member.uid, member.gid)
    if member.issym():
        return replace(node, link=member.linkname)
    if member.isreg():
        return replace(node, size=member.size, content=_hash(archive, member))
    if member.ischr() or member.isblk():
        return replace(node, link=f"{member.devmajor}:{member.devminor}")
    return node


def _hash(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    found, file = hashlib.sha256(), archive.extractfile(member)
    while file is not None and (chunk := file.read(_CHUNK)):
        found.update(chunk)
    return found.hexdigest()


def _merge(tree: FileTree, members: Iterator[tuple[str, Node]], where: str) -> None:
    """One layer on those below it: what it calls gone is gone of theirs alone, in any order."""
    below = set(tree)
    for path, node in members:
        folder, _, name = path.rpartition("/")
        if name == _OPAQUE:
            _remove(tree, below, folder, itself=False)
        elif name.startswith(_GONE):
            gone = name.removeprefix(_GONE)
            _remove(tree, below, f"{folder}/{gone}" if folder else gone, itself=True)
        else:
            if node.kind != "directory" and path in tree and tree[path].kind == "directory":
                _remove(tree, below, path, itself=True)
            below.discard(path)
            _place(tree, path, node, where)


def _remove(tree: FileTree, below: set[str], path: str, *, itself: bool) -> None:
    names = [path] if itself and path in below else []
    if not itself or (names and tree[path].kind == "directory"):
        prefix = f"{path}/" if path else ""
        names += [one for one in below if one.startswith(prefix)]
    for name in names:
        below.discard(name)
        del tree[name]


def _place(tree: FileTree, path: str, node: Node, where: str) -> None:
    above = path.rpartition("/")[0]
    while above and above not in tree:
        tree[above] = _UNSAID
        above = above.rpartition("/")[0]
    tree[path] = node
    if len(tree) > MAX_NODES:
        raise VerifyFailed(f"more than {MAX_NODES} files", where=where)
