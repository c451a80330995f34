"""A proved image at a desk, from which it goes to real registries and comes back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from backend.containers import LoadedImage
from backend.engines.protocol import Engine
from builder.bootstrap import Bootstrapped
from builder.registry.bringing import Asking, Brought, bring
from builder.registry.pushing import Pushed, push
from builder.registry.reference import parse_reference
from builder.resolve.exchange import Resolver, Secrets, in_container
from builder.state import State
from builder.storage.store import ContentStore
from images.digests import Digest
from images.errors import BuilderError, NetworkFailed
from provenance.layout import open_image
from provenance.layout_writing import init_layout
from tests.fakes.locks import AMD64
from tests.fakes.proved import World, make_world
from tests.real.registries import Running, build, debian, serving, serving_referrers

LABELS: Final = (("agent-image-builder.test", f"sharing-{os.getpid()}"),)


def loaded_resolver(engine: Engine, kept_state: State, bootstrapped: Bootstrapped) -> LoadedImage:
    """The resolver's image, which the engine has after this."""
    image = open_image(kept_state.layout, bootstrapped.resolver)
    found = engine.find_image(image)
    if found is not None:
        return found
    with kept_state.staging("load") as staging:
        return engine.load(image, staging)


@dataclass
class Desk:
    """A proved image, and how to reach a registry from a container."""

    root: Path
    world: World
    resolver: Resolver
    number: int = 0

    @property
    def image(self) -> Digest:
        return self.world.image.digest

    def push(self, address: str, name: str = "team/agents:1", **changes: Any) -> Pushed:
        to = parse_reference(f"{address}/{name}")
        resolver = replace(self.resolver, **changes)
        return push(self.world.layout, self.image, to, resolver, "builder push")

    def pull(self, address: str, name: str = "", **changes: Any) -> Brought:
        self.number += 1
        known = self.root / "known"
        init_layout(known)
        reference = parse_reference(f"{address}/{name or f'team/agents@{self.image}'}")
        resolver = replace(self.resolver, **changes)
        asking = Asking(resolver=resolver, platform=AMD64, known=known, command="builder pull REF")
        return bring(reference, asking, self.root / f"pulled-{self.number}")

    def arrived(self, brought: Brought) -> World:
        """The world in which the image is what came from a registry."""
        return replace(self.world, layout=brought.layout, image=open_image(brought.layout, self.image))

    def refused(self, address: str, reason: str) -> BuilderError:
        with pytest.raises(NetworkFailed) as found:
            self.pull(address)
        assert found.value.reason == reason
        assert "dummy" not in f"{found.value} {found.value.hint}"
        return found.value


@contextlib.contextmanager
def at_desk(engine: Engine, loaded: LoadedImage, root: Path) -> Iterator[Desk]:
    """With a small image, proved; afterwards no container of it may be left."""
    world = make_world(root / "world")
    world.prove()
    (root / "staging").mkdir()
    resolver = Resolver(
        run=in_container(engine, loaded, LABELS),
        secrets=Secrets(),
        store=ContentStore(root),
        staging=root / "staging",
        on_progress=lambda _: None,
    )
    yield Desk(root, world, resolver)
    assert engine.list_labelled(*LABELS[0]) == ()


def start(
    kind: str, pytestconfig: pytest.Config, kept_state: State, folder: Path, *, login: bool = False
) -> AbstractContextManager[Running]:
    """``kind``: distribution, debian, or referrers, which knows the API of that name."""
    cache = pytestconfig.cache
    assert cache is not None
    if kind == "debian":
        return serving(debian(cache), folder, login=login)
    binary = build(cache, kept_state.bootstrap)
    return serving_referrers(binary, folder) if kind == "referrers" else serving(binary, folder, login=login)
