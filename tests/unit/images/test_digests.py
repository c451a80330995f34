"""A digest and an integrity have one spelling, whoever wrote them."""

from __future__ import annotations

import pytest

from images.digests import Digest, Integrity
from images.errors import UsageError

HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "text",
    [
        HEX,
        f"sha256:{HEX}\n",
        f" sha256:{HEX}",
        f"sha256:{HEX}0",
        f"sha256:{HEX[1:]}",
        f"sha256:{HEX.upper()}",
        f"SHA256:{HEX}",
        f"sha512:{HEX}",
        f"sha256:{HEX[:-1]}\uff11",
        f"sha256-{HEX}",
        "",
    ],
)
def test_a_digest_has_one_spelling(text: str) -> None:
    with pytest.raises(UsageError):
        Digest(text)
    if not text.startswith("sha512"):
        with pytest.raises(UsageError):
            Integrity.parse(text)


def test_the_one_that_it_has() -> None:
    assert Digest(f"sha256:{HEX}").hex == HEX
    assert Integrity.parse(f"sha512:{HEX * 2}").hex == HEX * 2
