"""The resolver in its container, against the real registry: a lock, a pin that is gone, and nothing left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.containers import LoadedImage
from backend.engines.protocol import Engine
from builder.bootstrap import Bootstrapped
from builder.init import find_ca_bundle
from builder.resolve.exchange import Progress, Resolver, Secrets, in_container
from builder.resolve.lock_making import LockRequest, make_lock
from builder.state import State
from builder.storage.store import ContentStore
from builder.workshop import recipe
from images.config import ImageConfig, parse_config
from images.errors import PinError
from images.lock import Lock, ToolImages
from images.lockfile import lock_bytes, parse_lock
from provenance.layout import open_image
from tests.fakes.locks import BASE_DIGEST, BUILDER_TOML

pytestmark = pytest.mark.real
LABELS = (("agent-image-builder.test", f"resolve-{os.getpid()}"),)


@pytest.fixture(scope="module")
def loaded(engine: Engine, kept_state: State, bootstrapped: Bootstrapped) -> LoadedImage:
    image = open_image(kept_state.layout, bootstrapped.resolver)
    found = engine.find_image(image)
    if found is not None:
        return found
    with kept_state.staging("load") as staging:
        return engine.load(image, staging)


@pytest.fixture
def resolver(
    engine: Engine, loaded: LoadedImage, kept_state: State, heard: list[Progress]
) -> Iterator[Resolver]:
    bundle = find_ca_bundle()
    store = ContentStore(kept_state.store)
    with kept_state.staging("resolve") as staging:
        yield Resolver(
            run=in_container(engine, loaded, LABELS),
            secrets=Secrets(ca_bundle=bundle.read_bytes() if bundle else b""),
            store=store,
            staging=staging,
            on_progress=heard.append,
        )
    assert engine.list_labelled(*LABELS[0]) == ()


@pytest.fixture
def heard() -> list[Progress]:
    return []


def config(base: str, *changes: tuple[str, str]) -> ImageConfig:
    text = BUILDER_TOML.replace(str(BASE_DIGEST), base)
    for old, new in (
        ('claude-code = "2.1.328"\n', ""),
        ('"@anthropic-ai/claude-code"', ""),
        ('agent = "claude-code"\n', ""),
        *changes,
    ):
        assert old in text
        text = text.replace(old, new)
    return parse_config(text, where="builder.toml")


def lock_of(
    wanted: ImageConfig, resolver: Resolver, layout: Path, made: Bootstrapped, previous: Lock | None = None
) -> Lock:
    tools = ToolImages(resolver=made.resolver, build_container=made.build_container)
    request = LockRequest(recipe=recipe(), tools=tools, layout=layout, previous=previous)
    return make_lock(wanted, request, resolver)


def test_a_real_tree(
    resolver: Resolver, kept_state: State, bootstrapped: Bootstrapped, heard: list[Progress]
) -> None:
    wanted = config(str(bootstrapped.base))
    lock = lock_of(wanted, resolver, kept_state.layout, bootstrapped)
    assert parse_lock(lock_bytes(lock)) == lock
    assert any(event.step == "resolve" for event in heard)
    assert all(resolver.store.intact(artifact.integrity) for artifact in lock.artifacts)
    assert b"://" not in b"".join(line for line in lock_bytes(lock).splitlines() if b"command" not in line)
    heard.clear()
    again = lock_of(wanted, resolver, kept_state.layout, bootstrapped, previous=lock)
    assert heard == []
    assert lock_bytes(again) == lock_bytes(lock)


def test_a_pin_that_does_not_exist(resolver: Resolver, kept_state: State, bootstrapped: Bootstrapped) -> None:
    wanted = config(str(bootstrapped.base), ('"0.73.1"', '"0.73.999"'))
    with pytest.raises(PinError, match=r"pi-coding-agent@0\.73\.999 is not in the registry"):
        lock_of(wanted, resolver, kept_state.layout, bootstrapped)
