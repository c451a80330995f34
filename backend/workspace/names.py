"""Which names a file of a commit may have: those that no file system can take for a repository's own."""

from __future__ import annotations

from typing import Final

MAX_NAME: Final = 255  # bytes, of one segment
# Code points that HFS+ drops when it compares names: U+200C..F, U+202A..E, U+206A..F, U+FEFF.
_IGNORED: Final = frozenset(
    chr(point)
    for low, high in ((0x200C, 0x200F), (0x202A, 0x202E), (0x206A, 0x206F))
    for point in range(low, high + 1)
) | {"\ufeff"}
# How git quotes a byte that has a name.
_NAMED: Final = {
    **{7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
}


def name_fault(name: bytes) -> str:
    """Why one segment of a path is refused; empty when it may stay.

    Newlines, quotes and bytes that are no text are fine: nothing here is ever read by a shell.
    """
    if name in (b"", b".", b".."):
        return "an empty segment, . or .."
    if b"/" in name or b"\0" in name:
        return "a slash or a zero byte in a segment"
    if len(name) > MAX_NAME:
        return f"a segment longer than {MAX_NAME} bytes"
    if any(_is_git(part) for part in name.split(b"\\")):
        return "a name that some file system takes for .git"
    return ""


def _is_git(name: bytes) -> bool:
    text = "".join(char for char in name.decode("utf-8", "surrogateescape") if char not in _IGNORED)
    # NTFS: trailing dots and spaces do not count, a colon starts a stream, git~1 is the short name.
    plain = text.partition(":")[0].rstrip(". ").lower()
    return plain in (".git", "git~1")


def quoted(path: bytes) -> str:
    """A path as git quotes it."""
    plain = all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in path)
    if plain:
        return path.decode("ascii")
    return '"' + "".join(_NAMED.get(byte) or _escaped(byte) for byte in path) + '"'


def _escaped(byte: int) -> str:
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
