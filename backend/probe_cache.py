"""The probe's answers kept in one file, good for one boot, one engine identity and one base image."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from backend.containers import EngineFacts, ImageIdKind
from backend.engines.protocol import Engine
from backend.probe import HostProbe, ProbeLine, ProbeName, boot_id, probe_host
from backend.tools import Labels
from images.digests import Digest, canonical_json
from images.errors import HostError, UsageError
from images.oci import OciImage
from images.strictjson import read_object
from provenance.writing import replace_file

SCHEMA: Final = 1
_MAX_BYTES: Final = 256 * 1024


class _Kept(BaseModel):
    """The file: every key is known, every value has its exact type."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int
    boot_id: str
    base: str
    facts: EngineFacts
    id_kind: ImageIdKind
    uid_map: tuple[tuple[int, int, int], ...]
    lines: tuple[ProbeLine, ...]


_KEPT: Final = TypeAdapter(_Kept)


def probe(
    engine: Engine,
    base: OciImage,
    *,
    find_init: Callable[[], str],
    staging: Path,
    labels: Labels,
    cache: Path,
) -> HostProbe:
    """The kept answers if of this boot, engine and base; else asked anew and kept (see probe_host).

    ``find_init``: where the base has its init. It reads the whole base, so only who asks anew calls it.
    """
    facts = engine.facts()
    kept = read_kept(cache)
    if kept is not None and (kept.boot_id, kept.base, kept.facts) == (boot_id(), base.digest, facts):
        return kept
    found = probe_host(engine, base, init=find_init(), staging=staging, labels=labels)
    keep(found, cache)
    return found


def read_kept(cache: Path) -> HostProbe | None:
    """None when there is no file, it is not a private file of ours, or anything in it is not as written."""
    try:
        descriptor = os.open(cache, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        private = stat.S_ISREG(found.st_mode) and not found.st_mode & 0o077 and found.st_uid == os.geteuid()
        data = file.read(_MAX_BYTES + 1) if private else b""
    try:
        read_object(data, str(cache), max_bytes=_MAX_BYTES, error=HostError)
        kept = _KEPT.validate_json(data, strict=True)
        if kept.version != SCHEMA or tuple(line.name for line in kept.lines) != tuple(ProbeName):
            return None
        return HostProbe(
            boot_id=kept.boot_id,
            base=Digest(kept.base),
            facts=kept.facts,
            id_kind=kept.id_kind,
            uid_map=kept.uid_map,
            lines=kept.lines,
        )
    except (HostError, UsageError, ValidationError):
        return None


def keep(found: HostProbe, cache: Path) -> None:
    """Write the answers whole or not at all, readable by this user alone."""
    kept = _Kept(
        version=SCHEMA,
        boot_id=found.boot_id,
        base=found.base,
        facts=found.facts,
        id_kind=found.id_kind,
        uid_map=found.uid_map,
        lines=found.lines,
    )
    replace_file(cache, canonical_json(_KEPT.dump_python(kept, mode="json")), 0o600)
