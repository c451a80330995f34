"""A policy that does not trust the engine's store: the store is really changed, behind the engine's back."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backend.engine_store import StoreTrust
from backend.engines.calls import ContainerCalls
from backend.launch import launch
from backend.records import LaunchRecord
from images.errors import LaunchReason, LaunchRefused
from tests.attacks import Position, attack
from tests.real.ground import Ground, ground, world

__all__ = ["ground", "world"]

pytestmark = pytest.mark.real


def run(ground: Ground, stores: Path | None) -> LaunchRecord:
    admitted = dataclasses.replace(ground.admitted, rehash_store=True)
    with ground.control() as controller:
        return launch(dataclasses.replace(controller, stores=stores), admitted, ground.request("true"))


def test_a_store_as_it_should_be_is_hashed_once_per_boot(ground: Ground, tmp_path: Path) -> None:
    seen = [run(ground, tmp_path).observed.store for _ in range(2)]
    assert seen == [StoreTrust.HASHED, StoreTrust.HASHED_BEFORE]
    assert run(ground, None).observed.store is StoreTrust.HASHED
    assert ground.left() == ()


@contextmanager
def image_layer(ground: Ground) -> Iterator[Callable[[str], None]]:
    """A shell that has the folder of one of the image's layers, as its containers have it, in $LAYER."""
    engine = ground.engine
    assert isinstance(engine, ContainerCalls)
    ground.run(ground.request("true"))  # the image is loaded, and mapped if it is to be
    image = engine.find_image(ground.world.image)
    assert image is not None
    mapping, around = (("--userns=nomap",), ("podman", "unshare")) if engine.product == "podman" else ((), ())
    made = engine.client.need("container", "create", *mapping, "--network=none", str(image.id), what="create")
    container = made.decode().strip()
    try:
        asked = ("container", "inspect", "--format={{.GraphDriver.Data.LowerDir}}", container)
        below = engine.client.need(*asked, what="tell its layers").decode().strip().split(":")
        layer = below[-1]  # the lowest: those above may be empty, or the engine's own

        def act(script: str) -> None:
            environment = {"PATH": os.environ["PATH"], "HOME": str(Path.home()), "LAYER": layer}
            subprocess.run([*around, "sh", "-euc", script], env=environment, check=True, timeout=60)

        yield act
    finally:
        engine.remove(container)


@attack(by=Position.STORE_WRITER)
@pytest.mark.parametrize(
    ("change", "back", "said"),
    [
        ('echo planted > "$LAYER/planted"', 'rm "$LAYER/planted"', r"/planted \(not in the image\)"),
        ('chmod +t "$LAYER/usr/share"', 'chmod -t "$LAYER/usr/share"', r"/usr/share \(mode\)"),
    ],
)
def test_a_changed_store_is_refused_until_it_is_as_before(
    ground: Ground, tmp_path: Path, change: str, back: str, said: str
) -> None:
    with image_layer(ground) as act:
        act(change)
        try:
            with pytest.raises(LaunchRefused, match=said) as caught:
                run(ground, tmp_path)
        finally:
            act(back)
    assert caught.value.reason == LaunchReason.ENGINE_STORE
    assert ground.left() == ()
    assert run(ground, tmp_path).observed.store is StoreTrust.HASHED
