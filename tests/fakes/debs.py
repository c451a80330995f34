"""Small Debian packages for tests: an ar archive of two tars, as dpkg-deb writes it."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field

import zstandard

from images.digests import Integrity
from images.lock import Artifact, ArtifactKind, Authentication
from tests.fakes.locks import AMD64, SIGNER

# path; bytes = file, text = symbolic link, None = directory; mode
Member = tuple[str, bytes | str | None, int]

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".xz": lzma.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


@dataclass(frozen=True)
class Package:
    """One package: control fields beside the obligatory ones, control files, members of the data."""

    name: str
    version: str = "1.0-1"
    architecture: str = "amd64"
    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    hard_links: tuple[tuple[str, str], ...] = ()  # path, target
    pack: str = ".xz"

    def control(self) -> bytes:
        said = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": self.architecture,
            "Maintainer": "Tests <tests@example.invalid>",
            **self.fields,
            "Description": "a test\n It has two lines.",
        }
        return "".join(f"{key}: {value}\n" for key, value in said.items()).encode()

    def to_bytes(self) -> bytes:
        control: list[Member] = [("./", None, 0o755), ("./control", self.control(), 0o644)]
        control += [
            (f"./{name}", content, 0o755 if name.startswith(("pre", "post")) else 0o644)
            for name, content in self.files.items()
        ]
        data: list[Member] = [("./", None, 0o755), *((f"./{path}", *rest) for path, *rest in self.members)]
        parts = {
            "debian-binary": b"2.0\n",
            f"control.tar{self.pack}": PACK[self.pack](_tar(control)),
            f"data.tar{self.pack}": PACK[self.pack](_tar(data, self.hard_links)),
        }
        return b"!<arch>\n" + b"".join(ar_member(name, content) for name, content in parts.items())

    def artifact(self, *parents: str) -> Artifact:
        raw = self.to_bytes()
        return Artifact(
            kind=ArtifactKind.DEB,
            name=f"{self.name}:{self.architecture}",
            version=self.version,
            integrity=Integrity("sha256", hashlib.sha256(raw).hexdigest()),
            size=len(raw),
            platforms=(AMD64,),
            parents=tuple(sorted(parents or ("toolchain.debian",))),
            registry="debian",
            authenticated=Authentication.DEBIAN_SIGNED,
            signer=SIGNER,
        )


def ar_member(name: str, content: bytes) -> bytes:
    """One member of an ar archive, padded to an even length."""
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
    return header + content + b"\n" * (len(content) % 2)


def _tar(members: list[Member], hard_links: tuple[tuple[str, str], ...] = ()) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, content, mode in members:
            member = tarfile.TarInfo(path)
            member.mode, member.mtime = mode, 1_600_000_000
            if content is None:
                member.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
            data = content if isinstance(content, bytes) else b""
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for path, target in hard_links:
            member = tarfile.TarInfo(f"./{path}")
            member.type, member.linkname = tarfile.LNKTYPE, f"./{target}"
            archive.addfile(member)
    return out.getvalue()
