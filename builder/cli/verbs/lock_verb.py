"""`builder lock`: write builder.lock, move its pins, or check it."""

from __future__ import annotations

from builder.cli.documents.locks import FreshLockDocument, LockedDocument, UpgradedDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop, settings_of
from builder.cli.verbs.outdated_verb import pin_document
from builder.daily.updating import parse_moves, upgrade_here
from builder.locking import (
    Project,
    open_project,
    read_lock_file,
    require_true_signatures,
    stale_reasons,
    write_new_lock,
)
from builder.resolve.newest import BASE, PinStanding, Standing
from images.errors import UsageError
from images.lock import Lock
from images.lockfile import lock_digest
from provenance.origins import count_origins, counted, trusted_on_first_use


def run(invocation: Invocation) -> Result[LockedDocument | UpgradedDocument | FreshLockDocument]:
    """One line: the lock's digest."""
    project = open_project(invocation.options.config)
    if invocation.options.check and invocation.options.upgrade is not None:
        raise UsageError("--check changes nothing, and --upgrade does", hint="builder lock --upgrade")
    if invocation.options.check:
        return _check(invocation, project)
    if invocation.options.upgrade is not None:
        return _upgrade(invocation, project)
    lock, changed = write_new_lock(open_workshop(invocation), project)
    _tell(invocation, project, lock, changed)
    return Result(
        line=str(lock_digest(lock)),
        document=LockedDocument(
            lock=str(lock_digest(lock)),
            artifacts=len(lock.artifacts),
            authenticated=counted(lock.artifacts),
            changed=changed,
        ),
    )


def _check(invocation: Invocation, project: Project) -> Result[FreshLockDocument]:
    settings = settings_of(invocation)
    changed = stale_reasons(project, settings)
    if changed:
        raise UsageError(
            "the lock is stale: " + "; ".join(changed),
            where=str(project.lock_path),
            hint="builder lock",
            reason="stale-lock",
        )
    lock, _ = read_lock_file(project.lock_path)
    require_true_signatures(lock, settings, where=str(project.lock_path))
    invocation.reporter.say(f"{project.lock_path} is fresh")
    return Result(document=FreshLockDocument(lock=str(lock_digest(lock)), fresh=True))


def _upgrade(invocation: Invocation, project: Project) -> Result[UpgradedDocument]:
    moves = parse_moves(invocation.options.upgrade, project.config)
    done = upgrade_here(open_workshop(invocation), project, moves)
    for one in done.moved:
        invocation.reporter.say(f"{one.place}: {one.pinned} -> {one.newest}")
    for one in done.stayed:
        invocation.reporter.say(f"{one.place}: {one.pinned} stays ({_why_it_stays(one)})")
    if any(one.name == BASE for one in done.moved):
        invocation.reporter.warn("the base is another one: policy.toml must have its digest under bases")
    _tell(invocation, project, done.lock, done.changed)
    return Result(
        line=str(lock_digest(done.lock)),
        document=UpgradedDocument(
            lock=str(lock_digest(done.lock)),
            artifacts=len(done.lock.artifacts),
            authenticated=counted(done.lock.artifacts),
            changed=done.changed,
            moved=tuple(pin_document(one) for one in done.moved),
        ),
    )


def _why_it_stays(one: PinStanding) -> str:
    if one.note:
        return one.note
    if one.standing is Standing.AHEAD:
        return f"newer than {one.newest}, the latest of its publisher"
    if one.standing is Standing.UNKNOWN:
        return "nothing is known to be newer"
    return "the newest"


def _tell(invocation: Invocation, project: Project, lock: Lock, changed: bool) -> None:
    verb = "wrote" if changed else "nothing changed in"
    invocation.reporter.say(f"{verb} {project.lock_path}: {len(lock.artifacts)} artifacts")
    invocation.reporter.say(f"authenticated: {count_origins(lock.artifacts)}")
    if first_use := trusted_on_first_use(lock.artifacts):
        invocation.reporter.say(f"trusted on first use: {first_use}")
    for artifact in lock.artifacts:
        for script in () if artifact.scripts_run else artifact.scripts:
            invocation.reporter.warn(
                f"{artifact.name}@{artifact.version} has the script {script.event}, which will not run "
                "(node.install-scripts in builder.toml names those that may)"
            )
