"""Rollback high-water marks: the newest policy that this state accepted. Never rebuilt."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.digests import Digest, canonical_json
from images.errors import StateError, UsageError, VerifyFailed
from images.strictjson import is_number, read_object
from provenance.layout_writing import locked
from provenance.policy import Policy
from provenance.small_files import read_small
from provenance.writing import replace_file

SCHEMA: Final = 1
_MAX_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Marks:
    """The highest policy serial accepted here, and the digest of the policy that had it."""

    serial: int
    policy: Digest


def pin_marks(path: Path, policy: Policy) -> Marks:
    """Take this policy as the mark, whatever was there: by `init`, and by `builder policy pin` when asked."""
    marks = Marks(policy.serial, policy.digest)
    document = canonical_json(
        {"schema": SCHEMA, "policy": {"serial": marks.serial, "digest": str(marks.policy)}}
    )
    replace_file(path, document + b"\n", 0o600)
    return marks


def read_marks(path: Path) -> Marks:
    """The marks. Missing or damaged is a StateError: lost marks are refused until somebody pins them."""
    try:
        data = read_small(path, _MAX_BYTES)
    except FileNotFoundError:
        raise StateError(
            "the rollback marks are missing, so an old policy could not be told from a new one",
            where=str(path),
            hint="builder policy pin",
        ) from None
    except OSError as broken:
        why = f"the rollback marks cannot be read: {broken.strerror}"
        raise StateError(why, where=str(path), hint="builder policy pin") from None
    with contextlib.suppress(UsageError):
        found = read_object(data, str(path), max_bytes=_MAX_BYTES)
        policy = found.get("policy")
        if is_number(found.get("schema"), SCHEMA) and isinstance(policy, dict):
            serial, digest = policy.get("serial"), policy.get("digest")
            if type(serial) is int and isinstance(digest, str):
                return Marks(serial, Digest(digest))
    raise StateError("the rollback marks are damaged", where=str(path), hint="builder policy pin")


def check_marks(marks: Marks, policy: Policy) -> None:
    """Raise VerifyFailed for an older policy, and for another one of the same serial."""
    if policy.serial < marks.serial:
        raise VerifyFailed(
            f"the policy has serial {policy.serial}, but {marks.serial} was accepted here before",
            where=str(policy.path),
            hint="builder policy pin",
        )
    if policy.serial == marks.serial and policy.digest != marks.policy:
        raise VerifyFailed(
            f"the policy was changed and still has serial {policy.serial}; a change needs a higher one",
            where=str(policy.path),
            hint=f"raise serial in {policy.path}; or, if it is meant as it is: builder policy pin",
        )


def raise_marks(path: Path, policy: Policy) -> Marks:
    """After this policy admitted something: never lower again than it. Two processes at once are safe."""
    with locked(path.parent):
        marks = read_marks(path)
        check_marks(marks, policy)
        return marks if marks.policy == policy.digest else pin_marks(path, policy)
