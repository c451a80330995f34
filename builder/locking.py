"""builder.lock: make it in the resolver, read it, hold it against its configuration, fill the store."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from builder.resolve.freshness import check_lock, require_fresh
from builder.settings.settings_file import Settings, read_npm_keys, read_publishers
from builder.skills import ReadSkill, read_skills, store_skills
from builder.storage.references import refer_to_project
from builder.workshop import Workshop, recipe, tool_images
from images.config import ImageConfig, parse_config
from images.errors import PinError, StateError, UsageError
from images.lock import Lock, Recipe
from images.lockfile import LOCK_NAME, MAX_LOCK_BYTES, lock_bytes, parse_lock
from provenance.attestations import problem_with_attestation
from provenance.npm_signatures import problem_with_signature
from provenance.small_files import dangling_link
from provenance.writing import replace_file

MAX_CONFIG_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Project:
    """A directory with a builder.toml: the parsed configuration, and where its lock lies."""

    config_path: Path
    config: ImageConfig

    @property
    def lock_path(self) -> Path:
        """Beside builder.toml."""
        return self.config_path.parent / LOCK_NAME

    def skills(self) -> tuple[ReadSkill, ...]:
        """The Skills as they lie on disk now. UsageError or CredentialFound naming what must not be there."""
        return read_skills(self.config.skills, self.config_path.parent)


def open_project(config_path: Path) -> Project:
    """Read builder.toml. UsageError names file, line, key and what was expected."""
    raw = read_bounded(config_path, MAX_CONFIG_BYTES, hint="builder init")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise UsageError("not UTF-8", where=str(config_path), hint=f"correct {config_path}") from None
    return Project(config_path, parse_config(text, where=str(config_path)))


def read_lock_file(path: Path) -> tuple[Lock, bytes]:
    """A lock and its exact bytes. UsageError when it is missing, damaged or edited by hand."""
    raw = read_bounded(path, MAX_LOCK_BYTES, hint="builder lock")
    return parse_lock(raw, where=str(path)), raw


def read_fresh_lock(project: Project, settings: Settings) -> tuple[Lock, bytes]:
    """The lock beside builder.toml, which must be the one of this configuration and this program."""
    lock, raw = read_lock_file(project.lock_path)
    recipe_now = _known_recipe(lock, settings)
    require_fresh(project.config, lock, recipe_now, project.skills(), where=str(project.lock_path))
    return lock, raw


def require_true_signatures(lock: Lock, settings: Settings, *, where: str) -> None:
    """What a lock says of npm signatures and of publishers must hold with the keys and by the expectations
    that count here: nobody signs what is not. PinError names the first one that does not.
    """
    keys, publishers = read_npm_keys(settings), read_publishers(settings)
    problems = (
        problem_with_signature(artifact, keys) or problem_with_attestation(artifact, publishers)
        for artifact in lock.artifacts
    )
    if (problem := next(filter(None, problems), None)) is not None:
        raise PinError(problem, where=where, hint="builder lock", reason="integrity")


def write_new_lock(workshop: Workshop, project: Project) -> tuple[Lock, bool]:
    """Resolve, fetch and write the lock. Returns it, and whether the file changed."""
    with workshop.at_work():
        lock = resolve_lock(workshop, project)
        raw = lock_bytes(lock)
        changed = not (project.lock_path.is_file() and project.lock_path.read_bytes() == raw)
        if changed:
            replace_file(project.lock_path, raw)
        refer_to_project(workshop.state, project.lock_path, raw)
    return lock, changed


def resolve_lock(workshop: Workshop, project: Project, *, renew: frozenset[str] = frozenset()) -> Lock:
    """Resolve and fetch; no file of the project is written.

    A readable lock that is there keeps what its pins still say, so that nothing is resolved twice, except
    for the names in ``renew``.
    """
    # Heavy, and not needed by whoever only reads a lock.
    from builder.providing import lock_recipe, open_resolver  # noqa: PLC0415
    from builder.resolve.lock_making import LockRequest, make_lock  # noqa: PLC0415
    from builder.settings.registry_trust import trust_of  # noqa: PLC0415

    skills = project.skills()
    store_skills(skills, workshop.store)
    request = LockRequest(
        recipe=lock_recipe(workshop),
        tools=tool_images(workshop),
        layout=workshop.state.layout,
        previous=_previous(workshop, project),
        renew=renew,
        skills=skills,
        trust=trust_of(workshop),
    )
    with (
        workshop.reporter.step("resolve and fetch every artifact") as step,
        open_resolver(workshop, step) as resolver,
    ):
        return make_lock(project.config, request, resolver)


def keep_skills(workshop: Workshop, project: Project, lock: Lock) -> None:
    """Copy Skills that a fresh state lacks from beside builder.toml, if they are still the locked ones."""
    lacking = {
        skill.name
        for skill in lock.skills
        if not workshop.store.intact(lock.artifact(skill.artifact).integrity)
    }
    if lacking:
        found = (skill for skill in project.skills() if skill.lock.name in lacking)
        store_skills(
            tuple(one for one in found if one.integrity == lock.artifact(one.lock.artifact).integrity),
            workshop.store,
        )


def fetch_missing(workshop: Workshop, lock: Lock) -> None:
    """Fill the store with what this lock names and the store lacks; no engine is asked when nothing lacks.

    No registry has a Skill: ``builder lock`` copied it from beside builder.toml, and copies it again.
    """
    lacking = {one.id: one for one in lock.artifacts if not workshop.store.intact(one.integrity)}
    for archive in lock.archives:
        if archive.artifact in lacking:
            from builder.resolve.archive import missing_archive  # noqa: PLC0415  (only where one is missing)

            raise missing_archive(archive.place, lacking[archive.artifact].integrity)
    for skill in lock.skills:
        if skill.artifact in lacking:
            raise StateError(
                "is not in this state's store, or damaged there", where=skill.place, hint="builder lock"
            )
    if not lacking:
        return
    from builder.providing import open_resolver  # noqa: PLC0415
    from builder.resolve.lock_making import fetch  # noqa: PLC0415

    with (
        workshop.reporter.step("fetch what the store lacks") as step,
        open_resolver(workshop, step) as resolver,
    ):
        fetch(lock, resolver)


def stale_reasons(project: Project, settings: Settings) -> tuple[str, ...]:
    """What changed since the lock was made; empty when it is fresh. For ``lock --check``."""
    lock, _ = read_lock_file(project.lock_path)
    return check_lock(project.config, lock, _known_recipe(lock, settings), project.skills())


def _known_recipe(lock: Lock, settings: Settings) -> Recipe:
    """What is known without an engine: a build asks a build container from elsewhere for its BuildKit."""
    if settings.build_container is None:
        return recipe()
    return replace(recipe(), buildkit=lock.recipe.buildkit)


def _previous(workshop: Workshop, project: Project) -> Lock | None:
    if (link := dangling_link(project.lock_path)) is not None:
        raise UsageError("a link to nothing", where=str(link), hint=f"correct or remove {link}")
    if not project.lock_path.exists():
        return None
    try:
        return read_lock_file(project.lock_path)[0]
    except UsageError as broken:
        workshop.reporter.warn(f"the old lock is not used: {broken}")
        return None


def read_bounded(path: Path, limit: int, *, hint: str) -> bytes:
    """A whole regular file of at most ``limit`` bytes. UsageError naming it when it cannot be read."""
    try:
        # Not blocking: a pipe in its place is refused, and not waited for.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError("not a regular file", where=str(path), hint=hint)
            raw = file.read(limit + 1)
    except OSError as broken:
        raise UsageError(f"cannot be read: {broken.strerror}", where=str(path), hint=hint) from None
    if len(raw) > limit:
        raise UsageError(f"more than {limit} bytes", where=str(path), hint=hint)
    return raw
