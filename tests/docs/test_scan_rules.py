"""The page of scan rules is what the tables say."""

from __future__ import annotations

from tests.docs.scan_rules import PAGE, page


def test_the_page_is_written_from_the_tables() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.docs.scan_rules"
