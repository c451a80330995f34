"""`builder show`: what an image is and holds, which evidence and launches exist; or the record of a run.

Nothing is judged, but with ``--as``: a plan is shown of a verified image only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from backend.elsewhere.showing import Form, show_elsewhere
from backend.journal import Journal
from builder.cli.documents import printed
from builder.cli.documents.runs import LaunchDocument, PassageDocument, ShowRunDocument
from builder.cli.documents.shown import (
    BrokenEvidenceDocument,
    BrokenLockDocument,
    EvidenceDocument,
    ShowElsewhereDocument,
    ShowImageDocument,
    ShownImageDocument,
    ShownLaunchDocument,
    ShownLayerDocument,
    ShownLockDocument,
)
from builder.cli.invocation import Invocation, Result
from builder.cli.platform import host_platform
from builder.cli.session import state_of
from builder.cli.verbs.runs_verb import run_document, run_line
from builder.cli.verified import verified_here
from builder.launching import elsewhere_plan
from builder.reached import attempt_lines
from builder.report import in_words
from builder.running import Launched, find_launches
from builder.state import State
from builder.verifying import choose_image
from images.digests import Digest
from images.errors import VerifyFailed
from images.lock import Lock
from images.lockfile import parse_lock
from provenance.bundles import open_bundle
from provenance.layout import open_image
from provenance.origins import counted, trusted_on_first_use
from provenance.referrers import Referrers, read_referrers
from provenance.statements import parse_statement, utc
from provenance.verify import Purpose


def run(invocation: Invocation) -> Result[ShowImageDocument | ShowRunDocument | ShowElsewhereDocument]:
    """For people on standard error, for programs with ``--json``."""
    state = state_of(invocation)
    if invocation.options.form is not None:
        return _show_elsewhere(invocation, state)
    asked = invocation.options.image
    if asked is not None and not _is_image(invocation, asked):
        return _show_run(invocation, state, asked)
    chosen = choose_image(state, invocation.options.image, None, host_platform(), invocation.working_dir)
    with invocation.reporter.step(f"read {chosen.digest}"):
        image = open_image(state.layout, chosen.digest, host_platform())
    attached = read_referrers(state.layout, image.digest)
    document = ShowImageDocument(
        image=ShownImageDocument(
            digest=str(image.digest),
            config=str(image.settings.digest),
            platform=str(image.platform),
            bytes=sum(layer.size for layer in image.manifest.layers),
            layers=tuple(
                ShownLayerDocument(digest=str(layer.digest), bytes=layer.size)
                for layer in image.manifest.layers
            ),
            user=image.settings.user,
            labels=dict(image.settings.labels),
            locks=tuple(_described_lock(one.data) for one in attached.locks),
            evidence=tuple(_evidence(attached)),
            unreadable=attached.unreadable,
            launches=tuple(_launches(state, image.digest)),
        )
    )
    _print(invocation, printed(document.image))
    return Result(document=document)


def _is_image(invocation: Invocation, asked: str) -> bool:
    """A digest, or a file that exists; any other word can only be a run's."""
    return ":" in asked or "/" in asked or (invocation.working_dir / asked).exists()


def _show_elsewhere(invocation: Invocation, state: State) -> Result[ShowElsewhereDocument]:
    """A plan on standard output, of an image that a launch here would find proved."""
    options = invocation.options
    chosen, verified = verified_here(invocation, state, Purpose.ADMISSION)
    text = show_elsewhere(elsewhere_plan(chosen, verified), Form(options.form))
    shown = ShowElsewhereDocument(image=str(verified.image.digest), form=Form(options.form), text=text)
    return Result(line=text.removesuffix("\n"), document=shown)


def _show_run(invocation: Invocation, state: State, name: str) -> Result[ShowRunDocument]:
    """The launches of a run: how far each came, and its signed record as it is. Nothing is judged."""
    with Journal.open(state.journal, state.id) as journal:
        found = tuple(_launch_document(one) for one in find_launches(journal, name))
    for one in found:
        invocation.reporter.say(run_line(one.launch))
        for passage in one.passed:
            invocation.reporter.say(f"  {passage.at} {passage.boundary} {passage.detail}".rstrip())
        if one.record is not None:
            for line in attempt_lines(one.record):
                invocation.reporter.say(f"  network: {line}")
            text = json.dumps(one.record, indent=2, sort_keys=True, ensure_ascii=False)
            for line in text.splitlines():
                invocation.reporter.say(f"  {line}")
    document = ShowRunDocument(launches=found)
    return Result(document=document)


def _launch_document(one: Launched) -> LaunchDocument:
    return LaunchDocument(
        launch=run_document(one),
        passed=tuple(
            PassageDocument(boundary=passage.boundary, at=utc(passage.at), detail=passage.detail)
            for passage in one.passages
        ),
        record=None if one.record is None else {**one.record},
    )


def _described_lock(raw: bytes) -> ShownLockDocument | BrokenLockDocument:
    try:
        lock: Lock = parse_lock(raw, where="attached lock", error=VerifyFailed)
    except VerifyFailed as broken:
        return BrokenLockDocument(digest=str(Digest.of(raw)), problem=str(broken))
    return ShownLockDocument(
        digest=str(Digest.of(raw)),
        base=f"{lock.base.name}@{lock.base.requested}",
        agents={str(agent.name): agent.version for agent in lock.agents},
        mcp={server.name: f"{server.package}@{server.version}" for server in lock.servers},
        skills={skill.name: str(lock.artifact(skill.artifact).integrity) for skill in lock.skills},
        tools={tool.name: tool.version for tool in lock.pypi_tools},
        archives={one.name: str(lock.artifact(one.artifact).integrity) for one in lock.archives},
        node=lock.node_version,
        artifacts=len(lock.artifacts),
        authenticated=counted(lock.artifacts),
        trusted_on_first_use=trusted_on_first_use(lock.artifacts),
    )


def _evidence(attached: Referrers) -> Iterator[EvidenceDocument | BrokenEvidenceDocument]:
    """What the bundles claim; whether their signatures hold is ``verify``'s affair."""
    for one in attached.bundles:
        try:
            statement = parse_statement(open_bundle(one.data, "bundle").payload, "bundle")
        except VerifyFailed as broken:
            yield BrokenEvidenceDocument(problem=str(broken))
            continue
        yield EvidenceDocument(predicate_type=statement.predicate_type, statement=str(statement.digest))


def _launches(state: State, image: Digest) -> list[ShownLaunchDocument]:
    if not state.journal.exists():
        return []
    with Journal.open(state.journal, state.id) as journal:
        return [
            ShownLaunchDocument(
                launch=entry.intent.launch_id,
                mode=entry.intent.mode,
                engine=entry.intent.product,
                reached=entry.boundary,
                exit_code=entry.exit_code,
            )
            for entry in journal.entries()
            if entry.intent.image_digest == image
        ]


def _print(invocation: Invocation, document: dict[str, object]) -> None:
    for name, value in document.items():
        if isinstance(value, tuple):
            invocation.reporter.say(f"{name}:" if value else f"{name}: none")
            for item in value:
                words = item.items() if isinstance(item, dict) else (("", item),)
                invocation.reporter.say(
                    "  " + ", ".join(f"{key} {in_words(word)}".strip() for key, word in words)
                )
        else:
            invocation.reporter.say(f"{name}: {in_words(value)}")
    invocation.reporter.say("what the evidence is worth: builder verify")
