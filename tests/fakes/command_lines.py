"""The least that each verb wants to be given, so that a test can type all of them."""

from __future__ import annotations

from typing import Final

# A verb that is not here needs nothing.
LEAST_WORDS: Final = {
    "completion": ("bash",),
    "diff": ("a", "b"),
    "export": ("in-toto", "links"),
    "logout": ("pi",),
    "logs": ("run",),
    "policy": ("pin",),
    "pull": ("registry.test/x:1",),
    "push": ("builder.toml", "registry.test/x"),
    "scan": ("x",),
    "store": ("add", "x"),
}
