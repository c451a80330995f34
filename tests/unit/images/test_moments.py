"""Points in time as registries write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.moments import parse_moment

MOMENT = datetime(2026, 9, 27, 4, 53, 41, 736000, UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-09-27T04:53:41.736Z",
        "2026-09-27t04:53:41.736z",
        "2026-09-27T04:53:41.736000+00:00",
        "2026-09-27T04:53:41.736000999Z",
        "2026-09-27T06:53:41.736+02:00",
        "2026-09-26T22:53:41.736-06:00",
    ],
)
def test_one_moment(text: str) -> None:
    assert parse_moment(text) == MOMENT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-09-27",
        "20260927T045341Z",
        "2026-W39-7T04:53:41Z",
        "2026-09-27T04:53:41",  # no zone
        "2026-09-27 04:53:41Z",
        "2026-09-27T04:53Z",
        "2026-13-27T04:53:41Z",
        "2026-02-30T04:53:41Z",
        "2026-09-27T24:00:00Z",
        "2026-09-27T04:53:60Z",
        "2026-09-27T04:53:41+25:00",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "2026-09-27T04:53:41.Z",
        "2026-09-27T04:53:41Z\n",
        "٢٠٢٦-09-27T04:53:41Z",
        "1795910400",
        "Sun, 29 Nov 2026 19:44:05 GMT",
    ],
)
def test_no_moment(text: str) -> None:
    assert parse_moment(text) is None


@given(st.text(max_size=40))
def test_any_text_is_a_moment_or_none(text: str) -> None:
    found = parse_moment(text)
    assert found is None or found.tzinfo is UTC


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_python_writes_is_read(moment: datetime) -> None:
    assert parse_moment(moment.isoformat()) == moment
