"""Staging: only what was rendered and locked lies there, with set modes, from intact store files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builder.building.staging import stage_build
from images.errors import ExitCode, StateError
from images.oci import OciImage
from images.render import BuildContext, render
from provenance.layout import blob_path, open_image
from tests.attacks import Position, attack
from tests.fakes.bases import base_facts, make_base
from tests.fakes.layouts import flip
from tests.fakes.locks import AMD64
from tests.fakes.tarballs import TinySet, tiny_set
from tests.unit.images.test_render import TEMPLATE


@pytest.fixture
def base(tmp_path: Path) -> OciImage:
    return make_base(tmp_path / "base")


@pytest.fixture
def tiny(tmp_path: Path, base: OciImage) -> TinySet:
    return tiny_set(tmp_path / "set", base, TEMPLATE)


@pytest.fixture
def context(tiny: TinySet) -> BuildContext:
    return render(tiny.lock, AMD64, TEMPLATE, base_facts())


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_modes_are_set_whatever_the_umask(
    tiny: TinySet, base: OciImage, context: BuildContext, tmp_path: Path, mask: int
) -> None:
    staging = tmp_path / "staging"
    staging.mkdir(mode=0o700)
    before = os.umask(mask)
    try:
        staged = stage_build(context, base, tiny.store, Path("/nowhere/buildx"), staging)
    finally:
        os.umask(before)
    for top in (staged.context, staged.artifacts):
        for path in (top, *top.rglob("*")):
            expected = {0o755} if path.is_dir() else {0o444, 0o644}
            assert path.stat().st_mode & 0o777 in expected, path


def test_only_what_the_plan_names(
    tiny: TinySet, base: OciImage, context: BuildContext, tmp_path: Path
) -> None:
    staged = stage_build(context, base, tiny.store, Path("/nowhere/buildx"), tmp_path)
    files = {
        path.relative_to(staged.context).as_posix(): path.read_bytes()
        for path in staged.context.rglob("*")
        if path.is_file()
    }
    assert files == {file.path: file.content for file in context.files}
    sent = {path.relative_to(staged.artifacts).as_posix() for path in staged.artifacts.rglob("*.tgz")}
    assert sent == {f"{item.folder}/{item.name}" for item in context.artifacts}
    assert len(sent) == len(tiny.tarballs)


def test_a_damaged_artifact_is_found_before_the_build(
    tiny: TinySet, base: OciImage, context: BuildContext, tmp_path: Path
) -> None:
    flip(tiny.store.path_of(context.artifacts[0].artifact.integrity))
    with pytest.raises(StateError, match=r"damaged in the store: node:") as caught:
        stage_build(context, base, tiny.store, Path("/nowhere/buildx"), tmp_path)
    assert caught.value.code is ExitCode.STATE


def test_a_missing_artifact_is_named(
    tiny: TinySet, base: OciImage, context: BuildContext, tmp_path: Path
) -> None:
    tiny.store.path_of(context.artifacts[-1].artifact.integrity).unlink()
    with pytest.raises(StateError, match=r"not in the store: npm:"):
        stage_build(context, base, tiny.store, Path("/nowhere/buildx"), tmp_path)


def test_the_layers_of_the_base_need_not_come_back(
    tiny: TinySet, base: OciImage, context: BuildContext, tmp_path: Path
) -> None:
    staged = stage_build(context, base, tiny.store, Path("/nowhere/buildx"), tmp_path)
    for layer in base.manifest.layers:
        original, copy = blob_path(base.layout, layer.digest), blob_path(staged.output, layer.digest)
        assert copy.read_bytes() == original.read_bytes()
        assert original.stat().st_nlink == 1


@attack(by=Position.BUILD_CONTAINER)
def test_buildkit_is_given_a_layout_of_the_base_alone(
    tiny: TinySet, context: BuildContext, tmp_path: Path
) -> None:
    """It may do what it likes there: no file of it is one of ours, nor is there any other image."""
    base = make_base(tmp_path / "state")
    make_base(tmp_path / "state", config={"Labels": {"another": "image"}})
    staging = tmp_path / "staging"
    staging.mkdir(mode=0o700)
    staged = stage_build(context, base, tiny.store, Path("/nowhere/buildx"), staging)
    assert open_image(staged.base, base.digest).settings == base.settings
    given = {path.name for path in staged.base.rglob("*") if path.is_file()}
    own = {blob.digest.hex for blob in (*base.manifest.layers, base.manifest.config)}
    assert given == own | {base.digest.hex, "oci-layout", "index.json"}
    ours = {path.stat().st_ino for path in base.layout.rglob("*")}
    assert not ours & {path.stat().st_ino for path in staged.base.rglob("*")}
