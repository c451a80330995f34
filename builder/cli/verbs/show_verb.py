"""`builder show`: what an image is and holds, which evidence and launches exist; or the record of a run.

Nothing is judged.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from backend.journal import Journal
from builder.cli.invocation import Invocation, Result
from builder.cli.platform import host_platform
from builder.cli.run_documents import SHOW_RUN, LaunchDocument, PassageDocument, ShowRunDocument
from builder.cli.session import state_of
from builder.cli.verbs.runs_verb import run_document, run_line
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


def run(invocation: Invocation) -> Result:
    """For people on standard error, for programs with ``--json``."""
    state = state_of(invocation)
    asked = invocation.options.image
    if asked is not None and not _is_image(invocation, asked):
        return _show_run(invocation, state, asked)
    chosen = choose_image(state, invocation.options.image, None, host_platform(), invocation.working_dir)
    image = open_image(state.layout, chosen.digest, host_platform())
    attached = read_referrers(state.layout, image.digest)
    locks = [_described_lock(one.data) for one in attached.locks]
    document: dict[str, object] = {
        "digest": str(image.digest),
        "config": str(image.settings.digest),
        "platform": str(image.platform),
        "bytes": sum(layer.size for layer in image.manifest.layers),
        "layers": [{"digest": str(layer.digest), "bytes": layer.size} for layer in image.manifest.layers],
        "user": image.settings.user,
        "labels": dict(image.settings.labels),
        "locks": locks,
        "evidence": _evidence(attached),
        "unreadable": list(attached.unreadable),
        "launches": _launches(state, image.digest),
    }
    _print(invocation, document)
    return Result(document={"image": document})


def _is_image(invocation: Invocation, asked: str) -> bool:
    """A digest, or a file that exists; any other word can only be a run's."""
    return ":" in asked or "/" in asked or (invocation.working_dir / asked).exists()


def _show_run(invocation: Invocation, state: State, name: str) -> Result:
    """The launches of a run: how far each came, and its signed record as it is. Nothing is judged."""
    with Journal.open(state.journal, state.id) as journal:
        found = tuple(_launch_document(one) for one in find_launches(journal, name))
    for one in found:
        invocation.reporter.say(run_line(one.launch))
        for passage in one.passed:
            invocation.reporter.say(f"  {passage.at} {passage.boundary} {passage.detail}".rstrip())
        if one.record is not None:
            text = json.dumps(one.record, indent=2, sort_keys=True, ensure_ascii=False)
            for line in text.splitlines():
                invocation.reporter.say(f"  {line}")
    document = ShowRunDocument(launches=found)
    return Result(document={"result": SHOW_RUN, **asdict(document)})


def _launch_document(one: Launched) -> LaunchDocument:
    return LaunchDocument(
        launch=run_document(one),
        passed=tuple(
            PassageDocument(boundary=passage.boundary, at=utc(passage.at), detail=passage.detail)
            for passage in one.passages
        ),
        record=None if one.record is None else {**one.record},
    )


def _described_lock(raw: bytes) -> dict[str, object]:
    try:
        lock: Lock = parse_lock(raw, where="attached lock", error=VerifyFailed)
    except VerifyFailed as broken:
        return {"digest": str(Digest.of(raw)), "problem": str(broken)}
    return {
        "digest": str(Digest.of(raw)),
        "base": f"{lock.base.name}@{lock.base.requested}",
        "agents": {str(agent.name): agent.version for agent in lock.agents},
        "mcp": {server.name: f"{server.package}@{server.version}" for server in lock.servers},
        "skills": {skill.name: str(lock.artifact(skill.artifact).integrity) for skill in lock.skills},
        "tools": {tool.name: tool.version for tool in lock.pypi_tools},
        "archives": {one.name: str(lock.artifact(one.artifact).integrity) for one in lock.archives},
        "node": lock.node_version,
        "artifacts": len(lock.artifacts),
        "authenticated": counted(lock.artifacts),
        "trusted_on_first_use": trusted_on_first_use(lock.artifacts),
    }


def _evidence(attached: Referrers) -> list[dict[str, object]]:
    """What the bundles claim; whether their signatures hold is ``verify``'s affair."""
    found: list[dict[str, object]] = []
    for one in attached.bundles:
        try:
            statement = parse_statement(open_bundle(one.data, "bundle").payload, "bundle")
        except VerifyFailed as broken:
            found.append({"problem": str(broken)})
            continue
        found.append({"predicate_type": statement.predicate_type, "statement": str(statement.digest)})
    return found


def _launches(state: State, image: Digest) -> list[dict[str, object]]:
    if not state.journal.exists():
        return []
    with Journal.open(state.journal, state.id) as journal:
        return [
            {
                "launch": entry.intent.launch_id,
                "mode": entry.intent.mode,
                "engine": entry.intent.product,
                "reached": entry.boundary.value,
                "exit_code": entry.exit_code,
            }
            for entry in journal.entries()
            if entry.intent.image_digest == image
        ]


def _print(invocation: Invocation, document: dict[str, object]) -> None:
    for name, value in document.items():
        if isinstance(value, list):
            invocation.reporter.say(f"{name}:")
            for item in value:
                words = item.items() if isinstance(item, dict) else (("", item),)
                invocation.reporter.say("  " + ", ".join(f"{key} {word}".strip() for key, word in words))
        else:
            invocation.reporter.say(f"{name}: {value}")
    invocation.reporter.say("what the evidence is worth: builder verify")
