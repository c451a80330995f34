"""A state with tool images, a locked project and a proved image of it, without an engine; and empty ones."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from builder.building.evidence import remember
from builder.report import Reporter
from builder.settings.settings_file import GivenImage, Settings
from builder.state import State, open_state
from builder.workshop import Workshop
from images.digests import Digest
from images.key import summarise
from images.lock import Lock, ToolImages
from images.lockfile import lock_bytes
from images.oci import OciImage
from provenance.layout import open_image
from provenance.scan.memory import LayerMemory
from tests.fakes.layouts import make_image
from tests.fakes.locks import AMD64, make_lock
from tests.fakes.policies import policy_for
from tests.fakes.proved import BASE_FILES, CONFIG, World, facts_of
from tests.fakes.tarballs import tiny_set

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
TEMPLATE = "template"


def workshop_at(root: Path, settings: Settings | None = None, now: datetime = NOW) -> Workshop:
    """A workshop over a state root of its own; it cannot reach an engine."""
    return Workshop(
        state=open_state(root),
        settings=settings or Settings(),
        environment={},
        engine_name=None,
        reporter=Reporter(stream=io.StringIO()),
        platform=AMD64,
        now=lambda: now,
    )


def said(workshop: Workshop) -> str:
    """What its reporter said so far."""
    assert isinstance(workshop.reporter.stream, io.StringIO)
    return workshop.reporter.stream.getvalue()


@dataclass
class Team:
    """One member's state: a lock and its artifacts in the store, its base, the tools, and a proved image."""

    root: Path
    workshop: Workshop
    lock: Lock
    base: OciImage
    image: OciImage

    @property
    def state(self) -> State:
        return self.workshop.state

    @property
    def raw_lock(self) -> bytes:
        return lock_bytes(self.lock)

    @property
    def lock_path(self) -> Path:
        path = self.root / "project" / "builder.lock"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(self.raw_lock)
        return path

    @property
    def world(self) -> World:
        """To sign and verify with."""
        policy = policy_for(self.root / "config", base=self.base.digest)
        return World(self.state.root, self.state.layout, self.image, self.base, self.lock, policy)


def make_team(root: Path, *, proved: bool = True, filler: bytes = b"") -> Team:
    """A member who locked and, if ``proved``, built; ``filler`` is one more file of the image."""
    state = open_state(root / "state")
    base = open_image(state.layout, make_image(state.layout, (BASE_FILES,), config={}))
    build_container, resolver = (
        make_image(state.layout, ({"is": name.encode()},)) for name in ("build-container", "resolver")
    )
    made = tiny_set(state.root, base, TEMPLATE, lock=make_lock()).lock
    lock = replace(made, tools=ToolImages(resolver=resolver, build_container=build_container))
    settings = Settings(build_container=GivenImage(build_container), resolver=GivenImage(resolver))
    layers = (BASE_FILES, {"opt/agents/pi/cli.js": b"console.log(1)\n" * 50, "opt/filler": filler})
    image = base
    if proved:
        image = open_image(state.layout, make_image(state.layout, layers, config=CONFIG))
    team = Team(root, workshop_at(state.root, settings), lock, base, image)
    if proved:
        prove(team, image, lock)
    return team


def memory_of(team: Team) -> LayerMemory:
    """What this member's builds know of layers that were clean."""
    return LayerMemory(team.state.scans, team.root / "memory.key")


def prove(
    team: Team, image: OciImage, lock: Lock, *, built: datetime = NOW, name: str = "team/agents"
) -> None:
    """Attach a lock and a build's evidence to an image, and enter it into the ledger."""
    facts = facts_of(name=name, built=built)
    replace(team.world, image=image, lock=lock).prove(facts)
    remember(team.state, image, summarise(lock, AMD64), facts)


def another_image(team: Team, word: str) -> OciImage:
    """One more image on the same base, with nothing attached."""
    layers = (BASE_FILES, {"opt/word": word.encode()})
    return open_image(team.state.layout, make_image(team.state.layout, layers, config=CONFIG))


def files_of(state: State) -> dict[str, bytes]:
    """All that is in store and layout, by path."""
    return {
        str(path.relative_to(state.root)): path.read_bytes()
        for folder in (state.store, state.layout)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def digests_of(state: State) -> set[Digest]:
    """The blobs of the layout."""
    return {Digest.from_hex(path.name) for path in (state.layout / "blobs" / "sha256").iterdir()}
