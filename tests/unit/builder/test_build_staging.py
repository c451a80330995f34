"""Staging: only what was rendered and locked lies there, with set modes, from intact store files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builder.building.staging import stage_build
from images.errors import ExitCode, StateError
from images.render import BuildContext, render
from tests.fakes.bases import base_facts, make_base
from tests.fakes.layouts import flip
from tests.fakes.locks import AMD64
from tests.fakes.tarballs import TinySet, tiny_set
from tests.unit.images.test_render import TEMPLATE


@pytest.fixture
def tiny(tmp_path: Path) -> TinySet:
    return tiny_set(tmp_path / "set", make_base(tmp_path / "base"), TEMPLATE)


@pytest.fixture
def context(tiny: TinySet) -> BuildContext:
    return render(tiny.lock, AMD64, TEMPLATE, base_facts())


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_modes_are_set_whatever_the_umask(
    tiny: TinySet, context: BuildContext, tmp_path: Path, mask: int
) -> None:
    staging = tmp_path / "staging"
    staging.mkdir(mode=0o700)
    before = os.umask(mask)
    try:
        staged = stage_build(context, tiny.store, Path("/nowhere/buildx"), staging)
    finally:
        os.umask(before)
    for top in (staged.context, staged.artifacts):
        for path in (top, *top.rglob("*")):
            expected = {0o755} if path.is_dir() else {0o444, 0o644}
            assert path.stat().st_mode & 0o777 in expected, path


def test_only_what_the_plan_names(tiny: TinySet, context: BuildContext, tmp_path: Path) -> None:
    staged = stage_build(context, tiny.store, Path("/nowhere/buildx"), tmp_path)
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
    tiny: TinySet, context: BuildContext, tmp_path: Path
) -> None:
    flip(tiny.store.path_of(context.artifacts[0].artifact.integrity))
    with pytest.raises(StateError, match=r"damaged in the store: node:") as caught:
        stage_build(context, tiny.store, Path("/nowhere/buildx"), tmp_path)
    assert caught.value.code is ExitCode.STATE


def test_a_missing_artifact_is_named(tiny: TinySet, context: BuildContext, tmp_path: Path) -> None:
    tiny.store.path_of(context.artifacts[-1].artifact.integrity).unlink()
    with pytest.raises(StateError, match=r"not in the store: npm:"):
        stage_build(context, tiny.store, Path("/nowhere/buildx"), tmp_path)
