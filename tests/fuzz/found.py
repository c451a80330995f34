"""Inputs that once broke a reader, by target, as small as they get: each run begins with them."""

from __future__ import annotations

from typing import Final

from tests.fakes.hostile_tars import HOSTILE

FOUND: Final[dict[str, tuple[bytes, ...]]] = {
    "added-archive": tuple(HOSTILE.values()),
    "answer-to-npm-s-job": tuple(HOSTILE.values()),
    "debian-answer": (b'{"packages": [], "steps": [{"action": [], "names": []}]}',),
    "podman-container": (b'{"Mounts": 1}',),
    "pylock": (b"x = " + b"[" * 3000 + b"]" * 3000,),
    "references": (b"\xff",),
    "registry-tag-result": (b'{"found": [[], ""]}', b'{"found": [{}, ""]}'),
    "rollback-marks": (b'{"schema": true, "policy": {"serial": 1, "digest": "sha256:%s"}}' % (b"0" * 64),),
    "scan-request": (b"{}", b'{"digest": "", "threads": true}'),
    "settings-toml": (b"schema = true", b"schema = 1.0"),
}
