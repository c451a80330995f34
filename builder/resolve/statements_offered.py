"""What an index offers of its publishers' statements, judged for one package, and told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from builder.resolve.failures import GONE, At, failure
from images.attestation import Attestation
from images.errors import PinError, VerifyFailed
from images.strictjson import JsonValue
from provenance.attestations import Published, find_statement
from provenance.publishers import Publishers

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Offer:
    """The index's document, or the code of why it could not be had; neither: nothing is offered."""

    document: bytes = field(default=b"", repr=False)
    code: str = ""


@dataclass(frozen=True, slots=True)
class Stated:
    """What a package's statements come to. ``why``: why what is offered counts for nothing."""

    attestation: Attestation | None = None
    why: str = ""

    @property
    def counts(self) -> bool:
        """Whether it is of a publisher that was expected."""
        return self.attestation is not None and bool(self.attestation.bundle)


NO_OFFER: Final = Offer()
NOTHING: Final = Stated()


@dataclass(frozen=True, slots=True)
class Index:
    """How one index writes its documents, and where it is asked, for errors."""

    read: Callable[[bytes, str], tuple[bytes, ...]]
    alias: str
    step: str


def read_offer(value: JsonValue) -> Offer:
    """One answer of the container's; another form is no offer. The document is read when it is judged."""
    if not isinstance(value, dict):
        return NO_OFFER
    document, code = value.get("document"), value.get("code")
    return Offer(
        document.encode() if isinstance(document, str) else b"", code if isinstance(code, str) else ""
    )


def judge_offer(about: Published, offer: Offer, publishers: Publishers, index: Index) -> Stated:
    """Hold what is offered against who is expected.

    Raises PinError where a publisher is expected and no statement is his, NetworkFailed where it could not
    be asked whether there is one.
    """
    if publishers.root is None:
        return NOTHING
    expected = publishers.of(about.kind, about.name)
    bundles: tuple[bytes, ...] = ()
    if offer.code and expected is None:
        return Stated(why=f"it could not be had ({offer.code[:40]})")
    if offer.code and offer.code not in GONE:
        raise failure(offer.code, At(about.label, step=index.step, alias=index.alias))
    if offer.document:
        try:
            bundles = index.read(offer.document, about.label)
        except VerifyFailed as broken:
            if expected is None:
                return Stated(why=broken.what)
            raise PinError(
                f"what the index says of its publisher is of another form: {broken.what}",
                where=about.label,
                hint="find out what the registry serves; nothing of it is taken",
                reason="integrity",
            ) from None
    if not bundles and expected is None:
        return NOTHING
    found = find_statement(about, bundles, publishers, publishers.root)
    return Stated(found) if isinstance(found, Attestation) else Stated(why=found)


def tell(stated: Iterable[tuple[str, Stated]], on_note: Callable[[str], None]) -> None:
    """Say what is there and does not count; that there is nothing is no news."""
    all_stated = sorted(stated, key=lambda one: one[0])
    unexpected = [
        f"{label} by {one.attestation.publisher}"
        for label, one in all_stated
        if one.attestation is not None and not one.counts
    ]
    if unexpected:
        on_note(
            f"{_packages(unexpected)} published by whom nobody expects (publishers in settings.toml), which "
            f"counts for nothing: {_some(unexpected)}"
        )
    refused = [f"{label}: {one.why}" for label, one in all_stated if one.why]
    if refused:
        on_note(
            f"{_packages(refused)} with statements of publishers that count for nothing: {_some(refused)}"
        )


def _packages(listed: list[str]) -> str:
    return f"{len(listed)} package{'' if len(listed) == 1 else 's'}"


def _some(listed: list[str]) -> str:
    more = f"; and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return "; ".join(listed[:_SHOWN]) + more
