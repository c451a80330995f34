"""What the engine's store holds of an image, hashed again: for a policy that does not trust the store.

The engine packs the whole file system of a container that was created and never started; we hash each file
and compare with the verified layers. Nothing of the image runs for it. A good answer holds for one boot, one
engine and one image (ADR 42).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from backend.commands import BoundedFile
from backend.engines.protocol import Engine
from backend.plan import LaunchPlan
from backend.probe import boot_id
from backend.readback import allowances_of
from images.digests import canonical_json
from images.errors import HostError, LaunchReason, LaunchRefused, VerifyFailed
from provenance.file_tree import FileTree, Node, image_tree, packed_tree
from provenance.small_files import read_private
from provenance.writing import replace_file, state_errors

KEPT: Final = "store-"  # how the files of good answers begin
_SCHEMA: Final = 1
_NAMED: Final = 5  # differences that are named; the others are counted
_OF_ONE_FILE: Final = 4096  # header, padding and records of one entry of the tar
_MOST_KEPT: Final = 64 * 1024


class StoreTrust(StrEnum):
    """What is known of the engine's store."""

    TRUSTED = "trusted"
    HASHED = "hashed"
    HASHED_BEFORE = "hashed-before"  # in this boot, with this engine and this image


def check_store(
    engine: Engine,
    container: str,
    plan: LaunchPlan,
    staging: Path,
    *,
    memory: Path | None,
    hashing: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> StoreTrust:
    """Compare a container that was created and not started with the image's layers.

    ``staging``: a private directory with room for the whole image, unpacked. ``memory``: a private directory
    where a good answer is kept. ``hashing`` is entered while it is not answered from there. LaunchRefused
    names the first differences. HostError, StateError, VerifyFailed.
    """
    kept = None if memory is None else memory / f"{KEPT}{plan.admitted.image.digest.hex}.json"
    answer = _answer(plan)
    if kept is not None and read_private(kept, _MOST_KEPT) == answer:
        return StoreTrust.HASHED_BEFORE
    with hashing():
        planned = image_tree(plan.admitted.image)
        found = _packed(engine, container, planned, staging / "store.tar")
    if found is None:
        raise _refused(engine, plan, "more bytes than all files of the image")
    wrong = tuple(differences(planned, found, engine.product))
    if wrong:
        others = f", and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
        raise _refused(engine, plan, "; ".join(wrong[:_NAMED]) + others)
    if kept is not None:
        replace_file(kept, answer, 0o600)
    return StoreTrust.HASHED


def is_of_this_boot(kept: Path) -> bool:
    """Whether a good answer that was kept may still count; for who sweeps."""
    return f'"boot":"{boot_id()}"'.encode() in read_private(kept, _MOST_KEPT)


def _refused(engine: Engine, plan: LaunchPlan, what: str) -> LaunchRefused:
    return LaunchRefused(
        LaunchReason.ENGINE_STORE,
        f"the store of {engine.product} holds other files than were verified: {what}",
        where=str(plan.admitted.image.digest),
        hint=f"{engine.product} image rm --force {plan.container.image.id}",
    )


def differences(planned: FileTree, found: FileTree, product: str) -> Iterator[str]:
    """Each path that is not as planned, in order, as short text."""
    allowed = allowances_of(product)
    own = {path: Node(kind, mode, 0, 0, link=link) for path, kind, mode, link in allowed.packed}
    for path in sorted(planned.keys() | found.keys()):
        seen, want = found.get(path), planned.get(path)
        if seen is not None:
            seen = replace(seen, uid=seen.uid - allowed.packed_shift, gid=seen.gid - allowed.packed_shift)
        if seen != want and (seen is None or replace(seen, content="") != own.get(path)):
            yield f"/{ascii(path[:200])[1:-1]} ({_what(want, seen)})"


def _what(want: Node | None, seen: Node | None) -> str:
    if want is None:
        return "not in the image"
    if seen is None:
        return "missing"
    names = ("kind", "mode", "uid", "gid", "size", "content", "link")
    return ", ".join(name for name in names if getattr(want, name) != getattr(seen, name))


def _packed(engine: Engine, container: str, planned: FileTree, tar: Path) -> FileTree | None:
    """What the engine packs, through a file of ours. None: more than the image can need."""
    most = sum(node.size + _OF_ONE_FILE for node in planned.values()) + (1 << 20)
    try:
        with state_errors(tar):
            whole = engine.pack(container, BoundedFile(tar, most))
        if not whole:
            return None
        with tar.open("rb") as stream:
            return packed_tree(stream, engine.product)
    except VerifyFailed as broken:
        raise HostError(
            f"{engine.product} packed container {container[:12]} as no tar that can be read: {broken.what}",
            where=engine.product,
            hint="builder doctor",
        ) from None
    finally:
        tar.unlink(missing_ok=True)


def _answer(plan: LaunchPlan) -> bytes:
    """What a good answer depends on, and all that is kept of it: compared as bytes, never parsed."""
    return canonical_json(
        {
            "schema": _SCHEMA,
            "boot": boot_id(),
            "engine": asdict(plan.admitted.facts),
            "image": str(plan.admitted.image.digest),
            "id": str(plan.container.image.id),
        }
    )
