"""Archives that strangers packed: layers as the audit reads them, tarballs, wheels, .debs, team archives."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import posixpath
import shutil
import tarfile
import zipfile
from pathlib import Path

from backend.engine_store import differences
from builder.resolve.archive import check_commands, read_archive
from builder.resolve.tarball import read_package
from builder.resolve.wheel import read_wheel
from builder.storage.archive_format import BLOCK, END, blob_name, header
from builder.storage.archive_reading import stage_archive
from builder.storage.exporting import export
from provenance.audit.layertar import Kind, read_entries
from provenance.debs import DebKind, read_control, read_data
from provenance.file_tree import packed_tree
from tests.fakes.audited import Made, layer_bytes
from tests.fakes.debs import PACK, Package
from tests.fakes.registry import tarball
from tests.fakes.states import make_team
from tests.fakes.wheels import make_wheel
from tests.fuzz.mutate_archives import deb_mutator, mutate_tar, mutate_tar_gzip, mutate_zip
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.target import Ready, law, target

LAYER = [
    Made("dir", b"5", 0o755),
    Made("dir/file", mode=0o755, uid=1, gid=2, mtime=1_767_225_600, content=b"hello\n" * 100),
    Made("dir/link", b"2", 0o777, link="file"),
    Made("dir/hard", b"1", 0o755, link="dir/file"),
    Made("dir/" + "long/" * 25 + "näme", content=b"x"),
    Made("dir/.wh.gone"),
]
_PYTHONS = {"0": Kind.FILE, "5": Kind.DIRECTORY, "2": Kind.LINK, "1": Kind.HARD_LINK}


@target(mutate_tar)
def layer_for_the_audit(folder: Path) -> Ready:
    """A layer's tar. What it calls plain must read the same with another reader: names, sizes, content."""

    def look(raw: bytes) -> object:
        entries = list(read_entries(iter((raw,))))
        again = list(read_entries(raw[at : at + 700] for at in range(0, len(raw), 700)))
        law(entries == again, "in other pieces it reads differently")
        if any(one.odd for one in entries):
            return entries
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:", errorlevel=2) as archive:
            others = archive.getmembers()
            law(len(others) == len(entries), "another reader finds another number of members")
            for one, other in zip(entries, others, strict=True):
                law(one.path == other.name.rstrip("/"), "another reader finds another name")
                law(
                    (one.mode, one.uid, one.gid) == (other.mode, other.uid, other.gid),
                    "another owner or mode",
                )
                kind = _PYTHONS.get(other.type.decode(), Kind.SPECIAL)
                law(one.kind is kind, "another reader finds another kind")
                if one.kind is Kind.FILE:
                    content = archive.extractfile(other)
                    law(
                        content is not None and hashlib.sha256(content.read()).digest() == one.content,
                        "content",
                    )
        return entries

    return Ready((layer_bytes(LAYER),), look)


@target(mutate_tar)
def files_of_a_container(folder: Path) -> Ready:
    """What an engine packs of a container. What is taken as unchanged is so for another reader too."""
    seed = layer_bytes(LAYER)
    planned = packed_tree(io.BytesIO(seed), "engine")
    contents = _files(seed)

    def look(raw: bytes) -> object:
        found = packed_tree(io.BytesIO(raw), "engine")
        if not list(differences(planned, found, "docker")):
            law(_files(raw) == contents, "another reader finds other files")
        return found

    return Ready((seed,), look)


def _files(raw: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:", errorlevel=2) as archive:
        regular = (member for member in archive if member.isreg())
        return {posixpath.normpath(one.name.lstrip("/")): _content(archive, one) for one in regular}


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return file.read() if file else b""


@target(mutate_tar_gzip)
def npm_tarball(folder: Path) -> Ready:
    """What npm serves."""
    manifest: dict[str, object] = {
        "name": "@a/b",
        "version": "1.0.0",
        "bin": {"b": "cli.js"},
        "scripts": {"postinstall": "node x.js"},
        "dependencies": {"c": "^1"},
    }
    seeds = (tarball(manifest, {"cli.js": b"x", "README": b"y" * 600}),)  # type: ignore[arg-type]
    return Ready(seeds, lambda raw: read_package(io.BytesIO(raw), "@a/b@1.0.0"))


def _plain_tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, mode in (("kit", 0o755), ("kit/tool", 0o755), ("kit/" + "d/" * 60 + "näme", 0o644)):
            member = tarfile.TarInfo(name)
            member.mode = mode
            if name == "kit":
                member.type = tarfile.DIRTYPE
            else:
                member.size = 700
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return out.getvalue()


@target(mutate_tar)
def added_archive(folder: Path) -> Ready:
    """A tar that the operator put into the store: only plain paths, each once, below the archive."""

    def look(raw: bytes) -> object:
        found = read_archive(io.BytesIO(raw), "archive")
        for one in found:
            law(
                posixpath.normpath(one.path) == one.path and not one.path.startswith(("/", "..")),
                "no plain path",
            )
        law(len({one.path for one in found}) == len(found), "a path twice")
        check_commands(io.BytesIO(raw), (("tool", "kit/tool"),), "archives.kit")
        return found

    return Ready((_plain_tar(),), look)


@target(mutate_tar_gzip)
def added_archive_gzip(folder: Path) -> Ready:
    """The same, compressed."""
    return Ready(
        (gzip.compress(_plain_tar(), mtime=0),), lambda raw: read_archive(io.BytesIO(raw), "archive")
    )


@target(mutate_zip, share=0.6)
def wheel(folder: Path) -> Ready:
    """What PyPI serves. Python's own reader must find the same files."""
    files = {"quick/__init__.py": b"x = 1\n" * 20, "quick-1.0.data/scripts/run": (b"#!python\nx", 0o755)}
    seeds = (
        make_wheel(
            "quick", "1.0", files, requires=("a>=1", "b; x"), entry_points="[console_scripts]\nq=quick:x\n"
        ),
    )

    def look(raw: bytes) -> object:
        found = read_wheel(io.BytesIO(raw), "quick@1.0")
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            names = {name for name in archive.namelist() if not name.endswith("/")}
            law(names == set(found.files), "another reader finds other files")
            for name, one in found.files.items():
                law(
                    hashlib.sha256(archive.read(name)).digest() == one.content,
                    "another reader finds other bytes",
                )
                law(".." not in name.split("/") and not name.startswith("/"), "a path that leaves the wheel")
        return found

    return Ready(seeds, look)


def _package(pack: str) -> bytes:
    members = (
        ("usr", None, 0o755),
        ("usr/bin", None, 0o755),
        ("usr/bin/make", b"\x7fELF" * 30, 0o755),
        ("usr/bin/gmake", "make", 0o777),
    )
    scripts = {"postinst": b"#!/bin/sh\nset -e\n", "md5sums": b"0 usr/bin/make\n"}
    return Package(
        "make", files=scripts, members=members, hard_links=(("usr/bin/m2", "usr/bin/make"),), pack=pack
    ).to_bytes()


def _read_deb(raw: bytes) -> object:
    control = read_control(io.BytesIO(raw), "make")
    members = list(read_data(io.BytesIO(raw), "make"))
    for one in members:
        law(
            ".." not in one.path.split("/") and not one.path.startswith("/"), "a path that leaves the package"
        )
        law(one.kind is not DebKind.FILE or len(one.content) == 32, "a file without its hash")
    return control.fields, members


@target(deb_mutator(PACK[""], bytes, ""), share=0.3)
def deb(folder: Path) -> Ready:
    """A .deb of plain tars."""
    return Ready((_package(""),), _read_deb)


@target(deb_mutator(PACK[".xz"], lzma.decompress, ".xz"), share=0.3)
def deb_xz(folder: Path) -> Ready:
    """As Debian packs them."""
    return Ready((_package(".xz"),), _read_deb)


@target(mutate_bytes, share=0.6)
def deb_zstd(folder: Path) -> Ready:
    """As Ubuntu packs them."""
    return Ready((_package(".zst"), _package(".gz")), _read_deb)


@target(mutate_bytes, share=0.15)
def team_archive(folder: Path) -> Ready:
    """An archive of `builder store export`: no byte of it is free to choose."""
    team = make_team(folder / "team")
    path, staging = folder / "team.tar", folder / "staging"
    export(team.workshop, path, lock_path=team.lock_path, image=None)
    seed = path.read_bytes()

    def look(raw: bytes) -> object:
        path.write_bytes(raw)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        staged = stage_archive(path, staging, lambda _: None)
        out = bytearray()
        for name, data in staged.manifest.small_members():
            out += header(name, len(data)) + data + bytes(-len(data) % BLOCK)
        for digest, size in staged.manifest.blobs:
            out += header(blob_name(digest), size) + staged.blob(digest).read_bytes() + bytes(-size % BLOCK)
        law(bytes(out + END) == raw, "other bytes than its manifest and blobs ask for were taken")
        return staged

    return Ready((seed,), look)
