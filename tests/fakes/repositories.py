"""Real repositories for tests of the workspace: an operator's, an agent's, and hostile objects by hand."""

from __future__ import annotations

import hashlib
import os
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.test",
    "GIT_COMMITTER_NAME": "C",
    "GIT_COMMITTER_EMAIL": "c@example.test",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
}
PERSON = b"A <a@example.test> 1700000000 +0000"
TYPES = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}


@dataclass(frozen=True)
class Repo:
    """A repository that tests run git in, as its owner would."""

    path: Path

    @classmethod
    def new(cls, path: Path, *options: str) -> Repo:
        path.mkdir(parents=True, exist_ok=True)
        repo = cls(path)
        repo.git("init", "--quiet", "--initial-branch=main", *options)
        return repo

    def git(self, *argv: str, data: bytes | None = None, **environment: str) -> str:
        return self.raw(*argv, data=data, **environment).decode("utf-8", "surrogateescape").strip()

    def raw(self, *argv: str, data: bytes | None = None, **environment: str) -> bytes:
        done = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", "-c", "safe.directory=*", *argv],
            cwd=self.path,
            env={**ENVIRONMENT, "HOME": str(self.path), **environment},
            input=b"" if data is None else data,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
        return done.stdout

    def write(self, files: dict[str, str | bytes]) -> None:
        for name, content in files.items():
            place = self.path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(self, files: dict[str, str | bytes], message: str = "a change") -> str:
        self.write(files)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.head

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    def object(self, kind: str, content: bytes) -> str:
        """An object with any content at all, sound or not."""
        return self.git("hash-object", "-w", "--literally", "-t", kind, "--stdin", data=content)

    def tree(self, *entries: tuple[str, bytes, str]) -> str:
        """A tree of exactly these entries (mode, name, object), in this order."""
        return self.object("tree", tree_bytes(*entries))

    def commit_tree(self, tree: str, *parents: str) -> str:
        lines = [b"tree " + tree.encode(), *(b"parent " + parent.encode() for parent in parents)]
        return self.object(
            "commit", b"\n".join((*lines, b"author " + PERSON, b"committer " + PERSON, b"", b"by hand\n"))
        )


def tree_bytes(*entries: tuple[str, bytes, str]) -> bytes:
    return b"".join(
        mode.encode() + b" " + name + b"\0" + bytes.fromhex(target) for mode, name, target in entries
    )


def entry_header(kind: int, size: int) -> bytes:
    """The variable-length head of an object in a pack."""
    first, rest = size & 15, size >> 4
    out = bytearray()
    byte = kind << 4 | first
    while rest:
        out.append(byte | 0x80)
        byte, rest = rest & 0x7F, rest >> 7
    out.append(byte)
    return bytes(out)


def pack_of(*objects: tuple[str, bytes]) -> bytes:
    """A pack of whole objects (kind, content), as a program that checks nothing would write it."""
    return raw_pack(*(entry_header(TYPES[kind], len(body)) + zlib.compress(body) for kind, body in objects))


def raw_pack(*entries: bytes) -> bytes:
    body = b"PACK\0\0\0\2" + len(entries).to_bytes(4, "big") + b"".join(entries)
    return body + hashlib.sha1(body, usedforsecurity=False).digest()
