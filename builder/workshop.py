"""What building and resolving work with: state, engine, the pinned tool images, and who hears of progress."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backend.containers import LoadedImage
from backend.engines.protocol import Engine
from backend.engines.select import connect
from builder.bootstrap import Bootstrapped, bootstrapped_images
from builder.report import Reporter
from builder.resources import resource
from builder.settings import Settings
from builder.state import State
from builder.store import ContentStore
from images.digests import Digest
from images.errors import HostError, UsageError, VerifyFailed
from images.lock import Recipe, ToolImages
from images.oci import OciImage
from images.render import RENDERER_VERSION
from provenance.layout import open_image

TEMPLATE: Final = "Containerfile.in"
_BUILDKIT: Final = re.compile(r"^\s*github\.com/moby/buildkit (v[0-9.]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """``environment``: what engine clients may know of ours. ``engine_name``: as the command line asks."""

    state: State
    settings: Settings
    environment: Mapping[str, str]
    engine_name: str | None
    reporter: Reporter

    @property
    def store(self) -> ContentStore:
        """The content store of this state."""
        return ContentStore(self.state.store)

    def connect(self) -> Engine:
        """The engine: flag, else user setting, else the only one that answers. It is always printed."""
        name = self.engine_name or self.settings.engine
        engine = connect(name, self.state.client_home, self.environment)
        facts = engine.facts()
        kind = "rootless" if facts.rootless else "rootful"
        self.reporter.say(f"engine: {facts.product} {facts.version}, {kind}, {facts.endpoint}")
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


def tool_images(workshop: Workshop) -> ToolImages:
    """The digests of resolver and build container: from settings.toml, else what bootstrap made."""
    settings = workshop.settings
    made = _bootstrapped(workshop)
    resolver = settings.resolver or (made.resolver if made else None)
    build = settings.build_container or (made.build_container if made else None)
    if resolver is None or build is None:
        raise UsageError(
            "there is no resolver or no build container: neither settings.toml nor bootstrap gives one",
            hint="builder bootstrap",
        )
    return ToolImages(resolver=resolver, build_container=build)


def _bootstrapped(workshop: Workshop) -> Bootstrapped | None:
    return bootstrapped_images(workshop.state.layout, lock_copy=workshop.state.bootstrap / "bootstrap.lock")


def open_tool(workshop: Workshop, digest: Digest, what: str) -> OciImage:
    """One of our tool images, re-hashed. UsageError when the state does not have it whole."""
    try:
        return open_image(workshop.state.layout, digest)
    except VerifyFailed as broken:
        raise UsageError(
            f"the {what} is not whole in this state: {broken.what}",
            where=str(digest),
            hint="builder bootstrap",
        ) from None


def load_tool(workshop: Workshop, engine: Engine, image: OciImage, what: str) -> LoadedImage:
    """A tool image in the engine's store; skipped when it is there."""
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
