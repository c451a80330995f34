"""BuildKit's state goes into memory only where there is enough, and where overlayfs works on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from builder.building.memory import state_bytes
from images.render import render
from tests.fakes.bases import base_facts, make_base
from tests.fakes.engine import DOCKER_FACTS
from tests.fakes.locks import AMD64, with_toolchain
from tests.unit.images.test_render import TEMPLATE, lock_of_template

FACTS = dataclasses.replace(DOCKER_FACTS, kernel="6.18.0-13-amd64", remote=False)


@pytest.mark.parametrize(
    ("available", "changes", "in_memory"),
    [
        ("MemTotal: 9 kB\nMemAvailable:   16000000 kB\n", {}, True),
        ("MemAvailable: 4190000 kB\n", {}, False),
        ("MemTotal: 16000000 kB\n", {}, False),
        ("MemAvailable: many kB\n", {}, False),
        ("MemAvailable: 16000000 kB\n", {"remote": True}, False),
        ("MemAvailable: 16000000 kB\n", {"kernel": "6.5.9"}, False),
        ("MemAvailable: 16000000 kB\n", {"kernel": "6.6"}, True),
        ("MemAvailable: 16000000 kB\n", {"kernel": "unknown"}, False),
    ],
)
def test_when_it_fits(tmp_path: Path, available: str, changes: dict[str, object], in_memory: bool) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(available)
    base = make_base(tmp_path / "base")
    context = render(lock_of_template(), AMD64, TEMPLATE, base_facts())
    facts = dataclasses.replace(FACTS, **changes)  # type: ignore[arg-type]
    inputs = sum(item.artifact.size for item in context.artifacts) + base.manifest.layers[0].size
    assert state_bytes(context, base, facts, meminfo) == (48 * inputs if in_memory else 0)


def test_the_ceiling_leaves_memory_for_everything_else(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    context = render(lock_of_template(), AMD64, TEMPLATE, base_facts())
    inputs = sum(item.artifact.size for item in context.artifacts) + base.manifest.layers[0].size
    spare = -(-12 * inputs // 1024) * 1024
    (tmp_path / "meminfo").write_text(f"MemAvailable: {(4 << 20) + spare // 1024} kB\n")
    assert state_bytes(context, base, FACTS, tmp_path / "meminfo") == spare


def test_dpkg_needs_an_overlayfs_with_attributes(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemAvailable: 16000000 kB\n")
    context = render(with_toolchain(lock_of_template()), AMD64, TEMPLATE, base_facts())
    assert state_bytes(context, make_base(tmp_path / "base"), FACTS, tmp_path / "meminfo") == 0


def test_a_machine_that_does_not_say(tmp_path: Path) -> None:
    context = render(lock_of_template(), AMD64, TEMPLATE, base_facts())
    assert state_bytes(context, make_base(tmp_path), FACTS, tmp_path / "none") == 0
