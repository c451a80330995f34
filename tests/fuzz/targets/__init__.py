"""The readers that are fuzzed, by where their bytes come from; reading this package enters all of them."""

from tests.fuzz.targets import (
    archives,
    containers,
    evidence,
    layouts,
    nested,
    operator,
    resolver,
    scanning,
    state,
    streams,
)

__all__ = [
    "archives",
    "containers",
    "evidence",
    "layouts",
    "nested",
    "operator",
    "resolver",
    "scanning",
    "state",
    "streams",
]
