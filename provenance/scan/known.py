"""The operator's own values, as shapes that nothing but themselves can match, in every way to write them."""

from __future__ import annotations

import base64
import contextlib
from typing import Final

from images.credentials import Confirm, Secret, Shape
from images.errors import UsageError

KNOWN_RULE: Final = "known-value"
LEAST_KNOWN: Final = 6  # bytes: a shorter word stands in any image by chance
MAX_KNOWN: Final = 16_000  # bytes of one value
MAX_VALUES: Final = 200


def known_shapes(values: tuple[Secret, ...]) -> tuple[Shape, ...]:
    """One shape per value, its rule numbered from one in the order given.

    Beside the value itself its UTF-16 (as encoded commands have it) and its base64 are prefixes: both are
    then looked for in base64 and all other spellings too.
    """
    return tuple(
        Shape(f"{KNOWN_RULE}-{number}", tuple(_forms(value.reveal())), "", 0, 0, Confirm.KNOWN)
        for number, value in enumerate(values, 1)
    )


def _forms(value: bytes) -> list[bytes]:
    forms = [value]
    with contextlib.suppress(UnicodeDecodeError):
        forms.append(value.decode().encode("utf-16-le"))
    # As far as it does not depend on what follows.
    encoded = base64.b64encode(value[: len(value) - len(value) % 3])
    if len(encoded) >= 2 * LEAST_KNOWN:
        forms.append(encoded)
    return forms


def parse_known(raw: bytes, where: str) -> tuple[Secret, ...]:
    """One value a line; empty lines are none. UsageError names the line, never the value."""
    found = []
    for number, line in enumerate(raw.split(b"\n"), 1):
        value = line.removesuffix(b"\r")
        if not value:
            continue
        if not LEAST_KNOWN <= len(value) <= MAX_KNOWN:
            raise UsageError(
                f"line {number} has {len(value)} bytes; expected {LEAST_KNOWN} to {MAX_KNOWN}",
                where=where,
                hint="give one value a line, each as it is",
            )
        found.append(Secret(value))
    if not found or len(found) > MAX_VALUES:
        raise UsageError(f"{len(found)} values; expected 1 to {MAX_VALUES}", where=where)
    return tuple(found)
