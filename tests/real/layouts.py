"""Damage done to copies of a state: blobs of layouts, found and replaced by digest."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def copy_state(state: Path, copy: Path) -> None:
    """A private copy; blobs and artifacts are hard links, since nobody changes them in place.

    What processes that use the state just now hold in it comes and goes, and is theirs.
    """

    def link_or_copy(source: str, target: str) -> None:
        if "/blobs/" in source or "/store/" in source:
            os.link(source, target)
        else:
            shutil.copy2(source, target)

    theirs = ("bootstrap", "staging", "turns", "leases")
    shutil.copytree(state, copy, copy_function=link_or_copy, ignore=shutil.ignore_patterns(*theirs))
    for name in theirs:
        (copy / name).mkdir(mode=0o700)
    copy.chmod(0o700)


def referrer_blobs(layout: Path, digest: str) -> Iterator[Path]:
    """The payload blobs of everything attached to an image."""
    for _, manifest in _referrers(layout, digest):
        yield _blob(layout, manifest["layers"][0]["digest"])


def replace_blob(layout: Path, digest: str, payload: Path, content: bytes) -> None:
    """Put other bytes in a referrer, with every digest on the way corrected: what an attacker would do."""
    old = f"sha256:{payload.name}"
    for entry, manifest in list(_referrers(layout, digest)):
        if manifest["layers"][0]["digest"] != old:
            continue
        manifest["layers"][0] |= {"digest": _write(layout, content), "size": len(content)}
        raw = json.dumps(manifest).encode()
        index = json.loads((layout / "index.json").read_bytes())
        for listed in index["manifests"]:
            if listed["digest"] == entry["digest"]:
                listed |= {"digest": _write(layout, raw), "size": len(raw)}
        (layout / "index.json").write_text(json.dumps(index))


def _referrers(layout: Path, digest: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for entry in json.loads((layout / "index.json").read_bytes())["manifests"]:
        manifest = json.loads(_blob(layout, entry["digest"]).read_bytes())
        if manifest.get("subject", {}).get("digest") == digest:
            yield entry, manifest


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs/sha256" / digest.removeprefix("sha256:")


def _write(layout: Path, content: bytes) -> str:
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    path = _blob(layout, digest)
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    return digest
