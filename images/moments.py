"""Points in time as registries write them: RFC 3339 with a zone, and nothing that only looks like it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_MOMENT: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
_TOO_FINE: Final = re.compile(r"(\.\d{6})\d+")  # Python keeps microseconds


def parse_moment(text: str) -> datetime | None:
    """In UTC; None when it is no point in time (no zone, no such day, outside of the years 1 to 9999)."""
    if not _MOMENT.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(_TOO_FINE.sub(r"\1", text.upper())).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
