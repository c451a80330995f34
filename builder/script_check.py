"""What runs is what its own package says: the lock's scripts and commands against the artifacts."""

from __future__ import annotations

from builder.resolve.archive import check_commands
from builder.resolve.pypi_making import check_places, locked_wheels
from builder.resolve.tarball import read_package
from builder.resolve.wheel import WheelFacts, read_wheel
from builder.storage.store import ContentStore
from images.errors import PinError
from images.lock import Lock
from images.lock_additions import WHEEL_ID


def require_own_scripts(lock: Lock, store: ContentStore) -> None:
    """Of each artifact whose scripts run: they are the ones in its tarball, in the store already.

    `builder lock` took them from there; a lock that somebody wrote otherwise would run something else under
    the name of a package that is allowed to. PinError names the artifact.
    """
    for artifact in lock.artifacts:
        if not artifact.scripts_run:
            continue
        with store.open(artifact.integrity, artifact.label) as file:
            facts = read_package(file, artifact.label)
        if facts.scripts != artifact.scripts:
            raise PinError(
                "its install scripts in the lock are not those in its tarball",
                where=artifact.label,
                hint="find out who edited the lock, then: builder lock",
                reason="integrity",
            )


def require_own_commands(lock: Lock, store: ContentStore) -> None:
    """Each wheel and archive is read again as when it was locked: zip, name, commands, places, programs.

    What unpacks them in the build relies on it, and a lock may come from somebody who never made that check.
    PinError names the artifact.
    """
    facts: dict[str, WheelFacts] = {}
    for wheel in locked_wheels(lock):
        choice = wheel.choice
        if choice.filename in facts:
            continue
        with store.open(choice.integrity, choice.filename) as file:
            found = facts[choice.filename] = read_wheel(file, choice.filename)
        locked = lock.artifact(f"{WHEEL_ID}{choice.filename}")
        if (found.name, found.version, found.commands) != (locked.name, locked.version, locked.bins):
            raise PinError(
                "its name, version or commands in the lock are not those in the wheel",
                where=choice.filename,
                hint="find out who edited the lock, then: builder lock",
                reason="integrity",
            )
    for one in lock.pypi_installed:
        for tree in one.trees:
            names = [name.removeprefix(WHEEL_ID) for name in tree.wheels]
            check_places({name: facts[name] for name in names}, tree.python, one.place)
    for archive in lock.archives:
        artifact = lock.artifact(archive.artifact)
        with store.open(artifact.integrity, archive.place) as file:
            check_commands(file, artifact.bins, archive.place)
