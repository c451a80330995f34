"""What building and resolving work with: state, engine, the pinned tool images, and who hears of progress."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from builder.report import Reporter
from builder.resources import resource
from builder.roles import Role
from builder.settings.settings_file import GivenImage, Settings
from builder.state import State
from builder.storage.store import ContentStore
from images.digests import Digest
from images.errors import HostError, UsageError
from images.lock import Recipe, ToolImages
from images.oci import OciImage, Platform
from images.render import RENDERER_VERSION

if TYPE_CHECKING:  # a known image needs no engine
    from backend.containers import LoadedImage
    from backend.engines.protocol import Engine

TEMPLATE: Final = "Containerfile.in"
_BUILDKIT: Final = re.compile(r"^\s*github\.com/moby/buildkit (v[0-9.]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """``environment``: what engine clients may know of ours. ``engine_name``: as the command line asks.

    ``platform``: this machine's, which tool images must be for. ``now``: the wall clock. ``given``: the
    environment that we were started with, for variables that the operator's npmrc names; no child gets it.
    ``why_not``: what speaks against an engine where several answer; see :func:`builder.probing.why_not`.
    """

    state: State
    settings: Settings
    environment: Mapping[str, str]
    engine_name: str | None
    reporter: Reporter
    platform: Platform
    now: Callable[[], datetime]
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    why_not: Callable[[Workshop, Engine], str] = lambda _workshop, _engine: ""

    @property
    def store(self) -> ContentStore:
        """The content store of this state."""
        return ContentStore(self.state.store)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While this lasts, `builder gc` takes nothing out of the state. May be nested."""
        with self.state.in_use(lambda: self.reporter.say("builder gc is at work here; waiting for it")):
            yield

    def connect(self) -> Engine:
        """The engine: flag, else user setting, else the only one whose probe passes. It is always printed."""
        from backend.engines.select import connect  # noqa: PLC0415  (a known image needs no engine)

        name = self.engine_name or self.settings.engine
        why_not = partial(self.why_not, self)
        engine = connect(name, self.state.client_home, self.environment, why_not)
        facts = engine.facts()
        kind = "rootless" if facts.rootless else "rootful"
        self.reporter.say_once(f"engine: {facts.product} {facts.version}, {kind}, {facts.endpoint}")
        return engine


def template_text() -> str:
    """Containerfile.in, as this program ships it."""
    return resource(TEMPLATE).read_text()


def recipe() -> Recipe:
    """How this version builds: template, renderer and the BuildKit version that its modules pin."""
    found = _BUILDKIT.search((resource("bootstrap") / "go.mod").read_text())
    if found is None:
        raise HostError(
            "the pinned modules name no BuildKit version", where="go.mod", hint="reinstall builder"
        )
    return Recipe(template=Digest.of(template_text().encode()), renderer=RENDERER_VERSION, buildkit=found[1])


def tool_digest(workshop: Workshop, role: Role) -> Digest:
    """The digest of a role's image: of settings.toml, else of what bootstrap made. UsageError: neither."""
    given = given_image(workshop.settings, role)
    digest = given.digest if given else made_image(workshop, role)
    if digest is None:
        raise UsageError(
            f"there is no {role.replace('-', ' ')}: neither settings.toml nor bootstrap gives one",
            hint="builder bootstrap",
        )
    return digest


def tool_images(workshop: Workshop) -> ToolImages:
    """What a lock says of its tools. UsageError when there is none."""
    return ToolImages(
        resolver=tool_digest(workshop, Role.RESOLVER),
        build_container=tool_digest(workshop, Role.BUILD_CONTAINER),
    )


def given_image(settings: Settings, role: Role) -> GivenImage | None:
    """What settings.toml says for a role; None: bootstrap makes it."""
    given = {
        Role.BASE: settings.base,
        Role.BUILD_CONTAINER: settings.build_container,
        Role.RESOLVER: settings.resolver,
    }
    return given[role]


def made_image(workshop: Workshop, role: Role) -> Digest | None:
    """The image that bootstrap makes for a role, if the layout names it; not re-hashed."""
    from builder.bootstrap import LOCK_NAME, bootstrapped_image  # noqa: PLC0415  (heavy: what makes the images)

    return bootstrapped_image(workshop.state.layout, role, lock_copy=workshop.state.bootstrap / LOCK_NAME)


def load_image(workshop: Workshop, engine: Engine, image: OciImage, what: str) -> LoadedImage:
    """An image in the engine's store, with a step that says so; nothing when it is there."""
    found = engine.find_image(image)
    if found is not None:
        return found
    with workshop.reporter.step(f"load the {what} into {engine.product}"), load_staging(workshop) as staging:
        return engine.load(image, staging)


@contextmanager
def load_staging(workshop: Workshop) -> Iterator[Path]:
    """A private directory for what an engine reads from disk while it loads."""
    with workshop.state.staging("load") as staging:
        yield staging
