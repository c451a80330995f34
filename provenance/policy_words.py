"""What a policy says, line by line, and which of its lines decide each check: for people, before a launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from images.errors import BuilderError
from provenance.checks import CheckId
from provenance.marks import Marks, check_marks
from provenance.policy import Policy, Trusted
from provenance.policy_model import Role
from provenance.signers import in_words

SOON: Final = timedelta(days=14)  # what ends within that is pointed out

# The keys of policy.toml that decide a check. Of the others no policy has a say: the bytes decide.
DECIDED_BY: Final[dict[CheckId, tuple[str, ...]]] = {
    CheckId.SIGNATURE: (
        "trust.key",
        "trust.identity",
        "trust.issuer",
        "trust.trusted_root",
        "trust.not_after",
    ),
    CheckId.SIGNER: ("trust.builder_ids",),
    CheckId.PREDICATE: ("trust.predicate_types",),
    CheckId.PARAMETERS: ("expect", "mode"),
    CheckId.BASE: ("bases", "mode"),
    CheckId.AUDIT: ("require_audit", "accept"),
    CheckId.SCAN: ("min_ruleset", "nested", "opaque"),
    CheckId.REVOKED: ("revoked",),
    CheckId.AGE: ("max_age",),
    CheckId.ROLLBACK: ("serial",),
    CheckId.POLICY: ("valid_until",),
    CheckId.REBUILDS: ("min_rebuilds",),
    CheckId.SUMMARY: ("trust.verifier_ids",),
    CheckId.ARTIFACTS: ("refuse", "refuse_tofu", "require", "refuse_signers", "npm_keys", "publishers"),
}


class Bearing(StrEnum):
    """What a line of a policy means today."""

    HOLDS = "holds"
    NOTE = "note"  # nothing is refused by it yet, or something only
    REFUSES = "refuses"  # every image


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """One setting by its key, what it says, and whether anything can be launched under it."""

    setting: str
    says: str
    bearing: Bearing = Bearing.HOLDS


def explain_policy(policy: Policy, read_marks: Callable[[], Marks], now: datetime) -> tuple[PolicyLine, ...]:
    """Every setting in the order of the reference page. ``read_marks`` may raise as marks.read_marks does."""
    return (
        PolicyLine("mode", _mode(policy)),
        _serial(policy, read_marks),
        _until("valid_until", "the policy", policy.valid_until, now, Bearing.REFUSES),
        *_accepted(policy),
        PolicyLine("max_age", f"{policy.max_age.days} days" if policy.max_age else "images of any age"),
        PolicyLine("min_rebuilds", f"{policy.min_rebuilds} by distinct rebuilders"),
        PolicyLine("min_ruleset", f"scanned under ruleset {policy.min_ruleset} or a newer one"),
        PolicyLine("nested", _nested(policy)),
        *_origins(policy),
        PolicyLine("require_audit", "a layer audit is needed" if policy.require_audit else "not asked for"),
        _bases(policy),
        PolicyLine("revoked", _revoked(policy)),
        PolicyLine("network", _listed(map(str, policy.network)) or "nothing may be reached"),
        PolicyLine("engine_store", _STORE_HASHED if policy.rehash_store else _STORE_TRUSTED),
        PolicyLine(
            "expect", _listed(f"{name} of lock {lock}" for name, lock in policy.expect) or _UNEXPECTED
        ),
        *_trust(policy, now),
    )


_STORE_HASHED: Final = "hashed again, once per boot, engine and image"
_STORE_TRUSTED: Final = "what the engine keeps of an image is trusted"
_UNEXPECTED: Final = "no name: a bare digest needs --lock"


def _mode(policy: Policy) -> str:
    said = (
        "rootless engines only"
        if policy.mode == "required"
        else "also rootful and remote engines; records say so"
    )
    return f"{policy.mode}: {said}"


def _serial(policy: Policy, read_marks: Callable[[], Marks]) -> PolicyLine:
    try:
        marks = read_marks()
        check_marks(marks, policy)
    except BuilderError as broken:
        return PolicyLine("serial", f"{policy.serial}: {broken.what} ({broken.hint})", Bearing.REFUSES)
    return PolicyLine("serial", f"{policy.serial}; the highest accepted with this state is {marks.serial}")


def _until(setting: str, what: str, end: datetime, now: datetime, over: Bearing) -> PolicyLine:
    if now > end:
        return PolicyLine(setting, f"{what} ended on {end:%Y-%m-%d %H:%M} UTC", over)
    left = (end - now).days
    bearing = Bearing.NOTE if end - now < SOON else Bearing.HOLDS
    return PolicyLine(setting, f"{what} ends on {end:%Y-%m-%d}, in {left} days", bearing)


def _accepted(policy: Policy) -> Iterator[PolicyLine]:
    for one in policy.accept:
        yield PolicyLine("accept", f"{one.what}, not enforced: {one.why}", Bearing.NOTE)
    if not policy.accept:
        yield PolicyLine("accept", "nothing that a host cannot enforce")


def _origins(policy: Policy) -> Iterator[PolicyLine]:
    origins = policy.origins
    yield PolicyLine("refuse", _listed(map(str, sorted(origins.refuse))) or "no way of authentication")
    for kind, ways in origins.require:
        yield PolicyLine("require", f"{kind}: {' or '.join(sorted(ways))}")
    if origins.refuse_signers:
        yield PolicyLine("refuse_signers", _listed(sorted(origins.refuse_signers)))
    if origins.publishers.expected:
        yield PolicyLine(
            "publishers", f"{len(origins.publishers.expected)} packages have an expected publisher"
        )


def _bases(policy: Policy) -> PolicyLine:
    if not policy.bases:
        return PolicyLine("bases", "none is allowed, so no image is", Bearing.REFUSES)
    return PolicyLine("bases", _listed(sorted(map(str, policy.bases))))


def _revoked(policy: Policy) -> str:
    revoked = policy.revoked
    counted = (
        (len(revoked.digests), "images"),
        (len(revoked.keys), "keys"),
        (len(revoked.builder_ids), "builder ids"),
        (len(revoked.identities), "identities"),
    )
    return ", ".join(f"{count} {what}" for count, what in counted if count) or "nothing"


def _trust(policy: Policy, now: datetime) -> Iterator[PolicyLine]:
    for entry in policy.trust:
        yield _signer(entry, now)
    for role in (Role.BUILDER, Role.VERIFIER):
        living = [
            entry
            for entry in policy.trust
            if entry.role is role
            and not (entry.not_after and now > entry.not_after)
            and not policy.revoked.has(entry.who)
        ]
        if not living:
            yield PolicyLine("trust", f"no {role} is believed, so no image is admitted", Bearing.REFUSES)


def _signer(entry: Trusted, now: datetime) -> PolicyLine:
    who = f"{entry.role} {in_words(entry.who)} as {_listed(sorted(entry.ids))}"
    if entry.not_after is None:
        return PolicyLine("trust", f"{who}, without an end")
    return _until("trust", who, entry.not_after, now, Bearing.NOTE)


def _listed(words: Iterable[str], most: int = 10) -> str:
    found = list(words)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def _nested(policy: Policy) -> str:
    if not policy.nested_opened:
        return "archives inside of the image that could not be opened are listed, and refuse nothing"
    return f"archives inside are opened, explained by the lock, or among {len(policy.opaque)} accepted"
