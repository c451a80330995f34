"""The operator's own values, of ``--known`` and ``--known-fd``: from a private file or a descriptor."""

from __future__ import annotations

import os
from pathlib import Path

from builder.cli.invocation import Invocation
from builder.settings.settings_file import read_private
from images.credentials import Secret
from images.errors import UsageError
from provenance.scan.known import MAX_KNOWN, MAX_VALUES, parse_known

_MOST = MAX_KNOWN * MAX_VALUES


def known_values(invocation: Invocation) -> tuple[Secret, ...]:
    """All that is given, in order; none when neither is."""
    file: Path | None = invocation.options.known
    number: int | None = invocation.options.known_fd
    found: tuple[Secret, ...] = ()
    if file is not None:
        found += parse_known(read_private(file, "known values file"), str(file))
    if number is not None:
        found += parse_known(_descriptor(number), f"descriptor {number}")
    return found


def _descriptor(number: int) -> bytes:
    raw = b""
    try:
        while piece := os.read(number, 1 << 16):
            raw += piece
            if len(raw) > _MOST:
                raise UsageError(f"more than {_MOST} bytes", where=f"descriptor {number}")
    except (OSError, OverflowError) as broken:
        why = getattr(broken, "strerror", None) or "no such descriptor"
        raise UsageError(
            f"the known values cannot be read: {why}",
            where=f"descriptor {number}",
            hint="builder scan TARGET --known-fd 3 3<values.txt",
        ) from None
    return raw
