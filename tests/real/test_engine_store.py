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


IN_LAYER = """layers=$*
in_layer() { for layer in $layers; do [ ! -e "$layer/$1" ] || { echo "$layer/$1"; return; }; done; false; }"""
_BIN, _DASH = '"$(in_layer usr/bin)"', '"$(in_layer usr/bin/dash)"'
# What is done to the store, what undoes it, and what the refusal says.
PLANTED = (f"echo x > {_BIN}/planted", f"rm {_BIN}/planted", r"/usr/bin/planted \(not in the image\)")
WITH_ANOTHER_MODE = (f"chmod 4755 {_DASH}", f"chmod 0755 {_DASH}", r"/usr/bin/dash \(mode\)")


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
def image_layers(ground: Ground) -> Iterator[Callable[[str], None]]:
    """A shell in which `in_layer PATH` is where this file of the image lies, the highest of its places."""
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

        def act(script: str) -> None:
            argv = [*around, "sh", "-euc", f"{IN_LAYER}\n{script}", "sh", *below]
            environment = {"PATH": os.environ["PATH"], "HOME": str(Path.home())}
            subprocess.run(argv, env=environment, check=True, timeout=60)

        yield act
    finally:
        engine.remove(container)


@attack(by=Position.STORE_WRITER)
def test_a_changed_store_is_refused_until_it_is_as_before(ground: Ground, tmp_path: Path) -> None:
    # Under Podman a container's files are copies with owners of their own, in a layer above all of these.
    changes = (PLANTED,) if ground.engine.product == "podman" else (PLANTED, WITH_ANOTHER_MODE)
    with image_layers(ground) as act:
        for change, back, said in changes:
            act(change)
            try:
                with pytest.raises(LaunchRefused, match=said) as caught:
                    run(ground, tmp_path)
            finally:
                act(back)
            assert caught.value.reason == LaunchReason.ENGINE_STORE
            assert ground.left() == ()
    assert run(ground, tmp_path).observed.store is StoreTrust.HASHED
