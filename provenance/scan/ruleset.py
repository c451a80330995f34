"""Name what a verdict was made with: the ruleset by a digest over its tables, and the engine."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from images.credential_places import (
    HARMLESS_NAMES,
    HARMLESS_PATHS,
    HARMLESS_VALUES,
    LEAST_LITERAL,
    LEAST_NAMED_LITERAL,
    PATH_RULES,
    SECRET_NAMES,
    SECRET_WORDS,
)
from images.credentials import RULESET_VERSION, SHAPES
from images.digests import Digest, canonical_json
from provenance.scan.allow import AllowList

ENGINE_NAME: Final = "pyperscan"


def engine_identity() -> str:
    """Name and version of the binding; its Vectorscan is linked in, so this names both."""
    return f"{ENGINE_NAME} {version(ENGINE_NAME)}"


def ruleset_digest(allow: AllowList) -> Digest:
    """SHA-256 over RFC 8785 JSON of all tables and the allow-list's digest."""
    return Digest.of(
        canonical_json(
            {
                "version": RULESET_VERSION,
                "allow": allow.digest,
                "shapes": [
                    [shape.id, shape.pattern.decode("latin-1"), shape.confirm.value, shape.left.value]
                    for shape in SHAPES
                ],
                "paths": [[rule.id, *rule.globs, rule.look.value, *rule.keys] for rule in PATH_RULES],
                "names": sorted(SECRET_NAMES),
                "words": SECRET_WORDS.pattern,
                "least": [LEAST_LITERAL, LEAST_NAMED_LITERAL],
                "harmless": [HARMLESS_NAMES.pattern, HARMLESS_PATHS.pattern, HARMLESS_VALUES.pattern],
            }
        )
    )
