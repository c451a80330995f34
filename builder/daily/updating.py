"""Move pins: what is newer than builder.toml says, and builder.toml with its lock moved there together."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from builder.daily.config_edit import set_pins
from builder.daily.toolchain import ask_toolchain
from builder.locking import Project, read_lock_file, resolve_lock
from builder.providing import open_resolver, reference
from builder.resolve.debian import TOOLCHAIN
from builder.resolve.newest import BASE, MCP, NODE, PinStanding, Standing, newest_versions
from builder.resolve.pypi_making import TOOL
from builder.resolve.pypi_newest import newest_of_pypi, pypi_pins
from builder.resolve.python import Python
from builder.resolve.tags import Tagged, look_up
from builder.roles import Role
from builder.settings.registry_trust import age_gate
from builder.storage.references import refer_to_project
from builder.workshop import Workshop
from images.config import BaseReference, ImageConfig, check_version, parse_config
from images.digests import Digest
from images.errors import PinError, StateError, UsageError, VerifyFailed
from images.lock import Lock
from images.lockfile import lock_bytes
from images.oci import Platform
from images.pypi import check_pypi_version
from provenance.layout import Rehash, open_image
from provenance.writing import temporary_file

_HINT_BASE: Final = "builder bootstrap makes one; then: builder lock --upgrade base"


# What is newer than these pins of a configuration? And: make this project's lock, with these names anew.
Ask = Callable[[ImageConfig, frozenset[str]], tuple[PinStanding, ...]]
MakeLock = Callable[[Project, frozenset[str]], Lock]


@dataclass(frozen=True, slots=True)
class Move:
    """What an operator wants moved: ``name`` (an agent, ``node``, ``base``, …), and where to, if he says."""

    name: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class Upgraded:
    """The lock that was written, what moved, and what stayed although it was asked for."""

    lock: Lock
    moved: tuple[PinStanding, ...]
    stayed: tuple[PinStanding, ...]
    changed: bool


def parse_moves(words: Sequence[str], config: ImageConfig) -> tuple[Move, ...]:
    """``NAME`` or ``NAME=VERSION`` each; an empty word means every pin. UsageError names what is wrong."""
    names = pin_names(config)
    moves: dict[str, Move] = {}
    for word in words or ("",):
        if not word:
            moves = {name: Move(name) for name in names} | moves
            continue
        name, equals, target = word.partition("=")
        if name not in names:
            raise UsageError(
                f"--upgrade {name[:60]}: builder.toml has no such pin; expected one of {', '.join(names)}",
                hint="builder outdated",
            )
        if equals:
            _check_target(name, target, pypi=name in pypi_pins(config))
        moves[name] = Move(name, target)
    return tuple(moves.values())


def pin_names(config: ImageConfig) -> tuple[str, ...]:
    """The pins of a configuration, as ``lock --upgrade`` takes them."""
    agents, servers = (str(agent.name) for agent in config.agents), (f"{MCP}{one.name}" for one in config.mcp)
    tools = (f"{TOOL}{one.name}" for one in config.tools)
    return (*agents, *servers, *tools, NODE, BASE, *((TOOLCHAIN,) if config.debian else ()))


def standings(
    workshop: Workshop,
    config: ImageConfig,
    names: frozenset[str] | None = None,
    lock_path: Path | None = None,
) -> tuple[PinStanding, ...]:
    """How the pins stand to what the registries have now, the base to what this state has.

    ``lock_path``: of the lock that says which Python the image has.
    """
    wanted = names if names is not None else frozenset(pin_names(config))
    found: tuple[PinStanding, ...] = ()
    if wanted - {BASE}:
        with (
            workshop.reporter.step("ask for newer versions") as step,
            open_resolver(workshop, step) as resolver,
        ):
            lock = _lock_of(lock_path)
            if wanted - {BASE, TOOLCHAIN}:
                found = newest_versions(config, resolver, wanted, age_gate(workshop))
            if wanted & set(pypi_pins(config)):
                found += newest_of_pypi(config, _pythons(lock), resolver, wanted, age_gate(workshop))
            if TOOLCHAIN in wanted:
                found += (ask_toolchain(config, lock, workshop.state.layout, resolver),)
    return (*found, ask_base(workshop, config)) if BASE in wanted else found


def _lock_of(lock_path: Path | None) -> Lock | None:
    """The lock as it lies there, stale or not; None where there is none that can be read."""
    if lock_path is None or not lock_path.exists():
        return None
    try:
        return read_lock_file(lock_path)[0]
    except UsageError:
        return None


def _pythons(lock: Lock | None) -> dict[Platform, Python]:
    """The image's Python on each platform, as the lock has it."""
    return {
        tree.platform: Python(tree.python, tree.glibc)
        for one in (lock.pypi_installed if lock else ())
        for tree in one.trees
    }


def ask_base(workshop: Workshop, config: ImageConfig) -> PinStanding:
    """How the base stands: its registry is asked what it has under the tag and the digest, if it has one."""
    try:
        here = reference(workshop, Role.BASE)
    except UsageError:
        here = None  # nothing was bootstrapped, and settings.toml names none
    tagged = None
    if config.base.registry is not None and config.base.digest is not None:
        with (
            workshop.reporter.step("ask for a newer base") as step,
            open_resolver(workshop, step) as resolver,
        ):
            tagged = look_up(config.base, resolver)
    return base_standing(config, workshop.state.layout, here, tagged)


def base_standing(
    config: ImageConfig, layout: Path, here: BaseReference | None, tagged: Tagged | None = None
) -> PinStanding:
    """The base against what its tag names, else against ``here``: bootstrap's or settings.toml's of its name.

    A base that can be used from the layout is never gone, whatever the registry has.
    """
    base = config.base
    pinned = str(base.digest or base)
    newest = str(here.digest) if here is not None and here.digest and here.name == base.name else ""
    if tagged is not None and tagged.now is not None:
        newest = pinned if tagged.names_pinned else str(tagged.now)
    offered = tagged.pinned_is_there if tagged is not None else base.registry is not None
    if base.digest is not None and not offered and base_problem(config, layout):
        standing = Standing.GONE
    elif base.digest is None or not newest:
        standing = Standing.UNKNOWN
    else:
        standing = Standing.CURRENT if newest == pinned else Standing.OUTDATED
    return PinStanding(BASE, "image.base", pinned, newest, standing, note=_said_by_registry(base, tagged))


def _said_by_registry(base: BaseReference, tagged: Tagged | None) -> str:
    if tagged is None:
        return ""
    if not tagged.pinned_is_there:
        return "its registry no longer has the pinned digest"
    if base.tag and not tagged.names_pinned:
        return f"its tag {base.tag} names {'another image now' if tagged.now else 'nothing any more'}"
    return ""


def base_problem(config: ImageConfig, layout: Path) -> str:
    """Why the pinned base cannot be used from this layout; empty when it is whole."""
    if config.base.digest is None:
        return ""
    try:
        for platform in config.platforms:
            open_image(layout, config.base.digest, platform, rehash=Rehash.BYTES)
    except VerifyFailed as broken:
        return str(broken)
    return ""


def upgrade_here(workshop: Workshop, project: Project, moves: tuple[Move, ...]) -> Upgraded:
    """``upgrade`` with this workshop's resolver."""
    with workshop.at_work():
        done = upgrade(
            project,
            moves,
            ask=lambda config, names: standings(workshop, config, names, project.lock_path),
            make_lock=lambda wanted, renew: resolve_lock(workshop, wanted, renew=renew),
        )
        refer_to_project(workshop.state, project.lock_path, lock_bytes(done.lock))
    return done


def upgrade(project: Project, moves: tuple[Move, ...], *, ask: Ask, make_lock: MakeLock) -> Upgraded:
    """Move pins, resolve them and all below them again, and write builder.toml and builder.lock together.

    Nothing is written unless the lock was made. Raises PinError for a pin that is gone and has nowhere to go.
    """
    path = project.config_path.resolve()
    before = path.read_bytes()
    asked = frozenset(move.name for move in moves if not move.target and move.name != TOOLCHAIN)
    found = ask(project.config, asked) if asked else ()
    moved = (*(one for one in found if one.target), *_explicit(project.config, moves))
    for one in found:
        if one.standing is Standing.GONE and not one.target:
            raise PinError(
                f"{one.pinned} is gone, and nothing is there to move to",
                where=one.place,
                hint=_HINT_BASE if one.name == BASE else f"builder lock --upgrade {one.name}=VERSION",
                reason="not-found",
                pin=one.name,
            )
    pins = {one.place: _written(project.config, one) for one in moved}
    text = set_pins(before.decode(), pins, where=str(project.config_path))
    wanted = replace(project, config=parse_config(text, where=str(project.config_path)))
    lock = make_lock(wanted, frozenset(move.name for move in moves))
    if path.read_bytes() != before:
        raise UsageError(
            "was changed while it was being locked; nothing was written",
            where=str(project.config_path),
            hint="builder lock --upgrade",
        )
    files = ((project.lock_path, lock_bytes(lock)), (path, text.encode()))
    changed = tuple((file, raw) for file, raw in files if not file.is_file() or file.read_bytes() != raw)
    replace_together(changed)
    return Upgraded(lock, moved, tuple(one for one in found if not one.target), bool(changed))


def replace_together(files: Sequence[tuple[Path, bytes]]) -> None:
    """Replace all of these files, or none: what is new lies on disk before the first name changes.

    Raises StateError. Only a crash of the machine between two renames can part them; then the lock is stale,
    which every command says.
    """
    with ExitStack() as stack:
        try:
            staged = [(path, stack.enter_context(_staged(path, raw))) for path, raw in files]
            old = [
                (path, stack.enter_context(_staged(path, path.read_bytes())) if path.is_file() else None)
                for path, _ in files
            ]
            with _put_back_on_failure(old):
                for path, temporary in staged:
                    temporary.replace(path)
        except OSError as broken:
            raise StateError(
                f"cannot be written: {broken.strerror or broken}; nothing was changed",
                where=", ".join(str(path) for path, _ in files),
                hint="builder doctor",
            ) from None


def _check_target(name: str, target: str, *, pypi: bool) -> None:
    if name == TOOLCHAIN:
        raise UsageError(
            "--upgrade toolchain takes no version: the archive has one of each package",
            hint="builder lock --upgrade toolchain",
        )
    try:
        if name == BASE:
            Digest(target)
        else:
            (check_pypi_version if pypi else check_version)(target)
    except (ValueError, UsageError) as wrong:
        what = wrong.what if isinstance(wrong, UsageError) else str(wrong)
        example = "base=sha256:…" if name == BASE else f"{name}=1.2.3"
        raise UsageError(f"--upgrade {name}: {what}", hint=f"builder lock --upgrade {example}") from None


def _explicit(config: ImageConfig, moves: tuple[Move, ...]) -> Iterable[PinStanding]:
    """Moves whose target the operator gave: also back, if he says so."""
    now = {str(agent.name): (f"agents.{agent.name}", agent.version) for agent in config.agents}
    now |= {f"{MCP}{one.name}": (f"{MCP}{one.name}.version", one.version) for one in config.mcp}
    now |= pypi_pins(config)
    now |= {NODE: ("node.version", config.node.version)}
    now |= {BASE: ("image.base", str(config.base.digest or config.base))}
    now |= {TOOLCHAIN: ("toolchain.debian", "")}
    for move in moves:
        place, pinned = now[move.name]
        if move.target and move.target != pinned:
            yield PinStanding(move.name, place, pinned, move.target, Standing.OUTDATED)


def _written(config: ImageConfig, one: PinStanding) -> str:
    """The value in builder.toml: a version, or the base's reference with another digest."""
    if one.name != BASE:
        return one.target
    return str(BaseReference(config.base.name, Digest(one.target), config.base.tag))


@contextmanager
def _staged(path: Path, raw: bytes) -> Iterator[Path]:
    """The bytes under a temporary name beside ``path``, on disk, with the mode of the file they replace."""
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
    with temporary_file(path.parent) as (file, temporary):
        file.write(raw)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
        yield temporary


@contextmanager
def _put_back_on_failure(old: Sequence[tuple[Path, Path | None]]) -> Iterator[None]:
    """Whatever interrupts (an error, Ctrl-C): each file is afterwards its copy again, or absent again."""
    done = False
    try:
        yield
        done = True
    finally:
        for path, copy in () if done else old:
            with suppress(OSError):
                if copy is None:
                    path.unlink(missing_ok=True)
                else:
                    copy.replace(path)
