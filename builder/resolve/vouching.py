"""Fetch what a lock is made of, and find out who vouches for each package that the lock does not know yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from builder.resolve.composing import Source
from builder.resolve.exchange import Resolver
from builder.resolve.facts import Facts, FactsRequest, Release
from builder.resolve.failures import At, failure
from builder.resolve.job import FetchRequest, Job, perform
from builder.resolve.release_age import AgeGate, require_old_enough
from builder.resolve.statements_offered import Index, Stated, judge_offer, tell
from images.errors import PinError
from images.lock import Artifact, Authentication
from images.moments import parse_moment
from provenance.attestation_documents import npm_bundles
from provenance.attestations import Published, problem_with_attestation
from provenance.npm_signatures import (
    Judged,
    Keys,
    judge_signatures,
    problem_with_signature,
    shipped_keys,
)
from provenance.publishers import Publishers

STEP: Final = "facts"  # what the resolver is doing, in messages
NPM: Final = Index(npm_bundles, alias="npm", step=STEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Whose registry signatures count, whom to expect as publishers, how old a version must be, and who hears
    why something does not count.
    """

    keys: Keys = field(default_factory=shipped_keys)
    publishers: Publishers = field(default_factory=Publishers)
    gate: AgeGate | None = None
    on_note: Callable[[str], None] = lambda _: None


def kept_word(artifact: Artifact, trust: Trust) -> Judged | None:
    """What a lock already says of an artifact; None when it does not hold by today's keys and publishers."""
    if problem_with_signature(artifact, trust.keys) or problem_with_attestation(artifact, trust.publishers):
        return None
    return Judged(
        artifact.authenticated, artifact.signer, artifact.signature, attestation=artifact.attestation
    )


def require_old_roots(labels: Iterable[tuple[str, str]], gate: AgeGate, resolver: Resolver) -> None:
    """Refuse pins that are too young, before anything is resolved. ``labels``: name and version of each."""
    pins = sorted({(name, version) for name, version in labels if f"{name}@{version}" not in gate.excepted})
    if not pins:
        return
    questions = tuple(FactsRequest(name, (version,)) for name, version in pins)
    answers = perform(Job(facts=questions), resolver).facts
    found = [(asked.name, _release(asked, facts)) for asked, facts in zip(questions, answers, strict=True)]
    # One that the registry does not have is npm's to name, in a moment.
    require_old_enough(
        gate, [(f"{name}@{one.version}", one.published) for name, one in found if one is not None]
    )


def fetch_and_vouch(
    sources: Iterable[Source], known: Mapping[str, Judged], trust: Trust, resolver: Resolver
) -> dict[str, Judged]:
    """Bring the tarballs that the store lacks; by id, how each source was authenticated.

    ``known``: what the lock says already, which is not asked about again. Raises PinError for a version that
    is too young or whose signature is false.
    """
    all_sources = tuple(sources)
    fresh = tuple(sorted({one.label: one for one in all_sources if one.id not in known}.values(), key=_label))
    job = Job(
        fetch=lacking(all_sources, resolver),
        facts=tuple(
            FactsRequest(one.name, (one.version,), statements=trust.publishers.root is not None)
            for one in fresh
        ),
    )
    if trust.gate is not None and fresh:
        found = perform(replace(job, fetch=()), resolver).facts
        releases = _releases(fresh, found)
        require_old_enough(trust.gate, [(one.label, release.published) for one, release in releases])
        job = replace(job, facts=())
        if job.fetch:
            perform(job, resolver)
    else:
        found = perform(job, resolver).facts if job.fetch or fresh else ()
        releases = _releases(fresh, found)
    judged = {one.label: _judge(one, release, trust) for one, release in releases}
    stated = {
        one.label: judge_offer(_about(one), release.offer, trust.publishers, NPM) for one, release in releases
    }
    judged = {label: _with_statement(one, stated[label]) for label, one in judged.items()}
    _tell(judged.values(), sum(release.attested for _, release in releases), trust)
    tell(stated.items(), trust.on_note)
    return {one.id: known[one.id] if one.id in known else judged[one.label] for one in all_sources}


def lacking(sources: Iterable[Source], resolver: Resolver) -> tuple[FetchRequest, ...]:
    """The tarballs that the store does not have whole."""
    return tuple(
        sorted(
            {
                FetchRequest(source.name, source.version, source.integrity)
                for source in sources
                if not resolver.store.intact(source.integrity)
            }
        )
    )


def _label(source: Source) -> str:
    return source.label


def _releases(fresh: tuple[Source, ...], answers: tuple[Facts, ...]) -> list[tuple[Source, Release]]:
    found = []
    for source, facts in zip(fresh, answers, strict=True):
        request = FactsRequest(source.name, (source.version,))
        release = _release(request, facts)
        if release is None:
            raise failure("E404", At(source.label, step=STEP))
        found.append((source, release))
    return found


def _release(asked: FactsRequest, facts: Facts) -> Release | None:
    """None: the registry has no such version. Raises what else it could not be asked for."""
    if facts.code and not isinstance(broken := failure(facts.code, At(asked.name, step=STEP)), PinError):
        raise broken
    return facts.release(asked.versions[0])


def _judge(source: Source, release: Release, trust: Trust) -> Judged:
    published = parse_moment(release.published)
    return judge_signatures(source.label, source.integrity, release.signatures, published, trust.keys)


def _about(source: Source) -> Published:
    return Published(source.kind, source.name, source.version, source.integrity)


def _with_statement(judged: Judged, stated: Stated) -> Judged:
    """An expected publisher's statement is taken in place of the registry's signature: it says more."""
    found = stated.attestation
    if found is not None and stated.counts:
        return Judged(Authentication.NPM_PROVENANCE, found.publisher, attestation=found)
    return replace(judged, attestation=found)


def _tell(judged: Iterable[Judged], attested: int, trust: Trust) -> None:
    """Why what is there does not count; that there is nothing is no news."""
    for why, count in sorted(Counter(one.why for one in judged if one.why.startswith("signed")).items()):
        trust.on_note(f"{count} package{'' if count == 1 else 's'} trusted on first use: {why}")
    if attested and trust.publishers.root is None:
        trust.on_note(
            f"{attested} package{'' if attested == 1 else 's'} with statements of the publisher, which "
            "nobody checks without a sigstore_root in settings.toml: they count for nothing"
        )
