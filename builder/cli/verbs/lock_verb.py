"""`builder lock`: write builder.lock, or check it."""

from __future__ import annotations

from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop, settings_of
from builder.locking import open_project, stale_reasons, write_new_lock
from images.errors import UsageError
from images.lockfile import lock_digest


def run(invocation: Invocation) -> Result:
    """One line: the lock's digest."""
    project = open_project(invocation.options.config)
    if invocation.options.check:
        changed = stale_reasons(project, settings_of(invocation))
        if changed:
            raise UsageError(
                "the lock is stale: " + "; ".join(changed),
                where=str(project.lock_path),
                hint="builder lock",
                reason="stale-lock",
            )
        invocation.reporter.say(f"{project.lock_path} is fresh")
        return Result()
    lock, changed_file = write_new_lock(open_workshop(invocation), project)
    digest = lock_digest(lock)
    verb = "wrote" if changed_file else "nothing changed in"
    invocation.reporter.say(f"{verb} {project.lock_path}: {len(lock.artifacts)} artifacts")
    for artifact in lock.artifacts:
        for script in () if artifact.scripts_run else artifact.scripts:
            invocation.reporter.warn(
                f"{artifact.name}@{artifact.version} has a {script.event} script, which will not run "
                "(node.install-scripts in builder.toml names those that may)"
            )
    return Result(
        line=str(digest),
        document={"lock": str(digest), "artifacts": len(lock.artifacts), "changed": changed_file},
    )
