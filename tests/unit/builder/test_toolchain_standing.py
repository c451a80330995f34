"""`builder outdated` of a toolchain: what apt would add now against what the lock has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from builder.cli.verbs.outdated_verb import warnings_of, words_for
from builder.daily import toolchain
from builder.daily.toolchain import ask_toolchain, compare_toolchain
from builder.resolve.exchange import Resolver, Secrets
from builder.resolve.newest import Standing
from builder.storage.store import ContentStore
from images.basefacts import DebianFacts
from images.config import ImageConfig, parse_config
from images.errors import NetworkFailed, NetworkReason, PinError
from images.oci import Platform
from tests.fakes.layouts import make_image
from tests.fakes.locks import AMD64, BUILDER_TOML, base_image, make_lock, with_toolchain

LOCKED = {AMD64: {"make:amd64": "4.3-4.1", "libguile-3.0-1:amd64": "3.0.8-2"}}
CONFIG = parse_config(BUILDER_TOML + '\n[toolchain]\ndebian = ["git", "make"]\n', where="builder.toml")


def test_the_same_packages_are_current() -> None:
    found = compare_toolchain(CONFIG, LOCKED, LOCKED)
    assert (found.standing, found.pinned, found.target) == (Standing.CURRENT, "make=4.3-4.1", "")
    assert words_for(found) == "the newest"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"make:amd64": "4.3-4.2"}, "make=4.3-4.2"),
        ({"libguile-3.0-1:amd64": "3.0.9-1"}, "libguile-3.0-1=3.0.9-1"),
        ({"libnew:all": "1"}, "libnew=1"),
    ],
)
def test_a_package_that_moved_or_came_is_named(change: dict[str, str], said: str) -> None:
    found = compare_toolchain(CONFIG, LOCKED, {AMD64: {**LOCKED[AMD64], **change}})
    assert (found.standing, found.target) == (Standing.OUTDATED, said)


def test_a_package_that_is_needed_no_more_is_named() -> None:
    found = compare_toolchain(CONFIG, LOCKED, {AMD64: {"make:amd64": "4.3-4.1"}})
    assert (found.standing, found.target) == (Standing.OUTDATED, "libguile-3.0-1=none")


def test_many_packages_are_counted() -> None:
    many = {f"lib{number:03}:all": "1" for number in range(40)}
    found = compare_toolchain(CONFIG, {AMD64: {}}, {AMD64: many})
    assert (found.target.count(","), found.target[-4:]) == (12, ",+28")
    assert " " not in found.target


class Asked:
    """In the place of the container: what it was asked, and what it says."""

    def __init__(self, says: Mapping[str, str] | Exception) -> None:
        self.says = says
        self.names: tuple[str, ...] = ()

    def __call__(
        self, asked: tuple[str, ...], facts: Mapping[Platform, DebianFacts | None], _: Resolver
    ) -> dict[Platform, dict[str, str]]:
        self.names = asked
        if isinstance(self.says, Exception):
            raise self.says
        return {platform: dict(self.says) for platform in facts}


class Desk:
    """A locked toolchain on a base that lies in a layout."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.layout, self.patch = root / "layout", patch
        digest = make_image(self.layout)
        self.lock = with_toolchain(make_lock())
        self.lock = replace(self.lock, base=replace(self.lock.base, images=(base_image(manifest=digest),)))
        self.resolver = Resolver(
            run=None,  # type: ignore[arg-type]  # nobody runs it
            secrets=Secrets(),
            store=ContentStore(root),
            staging=root,
            on_progress=lambda _: None,
        )
        facts = DebianFacts(
            status=b"", distribution="debian", codename="bookworm", aliases={}, directories={}
        )
        patch.setattr(toolchain, "read_base", lambda _: type("Facts", (), {"debian": facts}))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def standing(desk: Desk, says: Mapping[str, str] | Exception, config: ImageConfig = CONFIG) -> Standing:
    desk.patch.setattr(toolchain, "offered_debian", Asked(says))
    return ask_toolchain(config, desk.lock, desk.layout, desk.resolver).standing


def test_the_locked_packages_are_compared_with_what_apt_says(desk: Desk) -> None:
    assert standing(desk, LOCKED[AMD64]) is Standing.CURRENT
    assert standing(desk, {**LOCKED[AMD64], "make:amd64": "4.4-1"}) is Standing.OUTDATED


def test_a_package_that_the_archive_has_no_more_is_gone(desk: Desk) -> None:
    desk.patch.setattr(toolchain, "offered_debian", Asked(PinError("make is not in the archive")))
    found = ask_toolchain(CONFIG, desk.lock, desk.layout, desk.resolver)
    assert (found.standing, found.target) == (Standing.GONE, "")
    assert warnings_of((found,)) == ["toolchain.debian: git,make is gone upstream"]


def test_an_archive_that_cannot_be_asked_is_no_answer(desk: Desk) -> None:
    with pytest.raises(NetworkFailed):
        standing(desk, NetworkFailed(NetworkReason.UNREACHABLE, "no answer"))


def test_without_lock_of_the_same_names_nothing_is_asked(desk: Desk) -> None:
    asked = Asked(RuntimeError("asked"))
    desk.patch.setattr(toolchain, "offered_debian", asked)
    for lock in (None, make_lock(), with_toolchain(make_lock(), in_base=())):
        found = ask_toolchain(CONFIG, lock, desk.layout, desk.resolver)
        assert (found.standing, asked.names) == (Standing.UNKNOWN, ())
        assert words_for(found) == "no lock says which versions it has: builder lock"
        assert warnings_of((found,)) == []


def test_without_the_base_nothing_is_asked(desk: Desk, tmp_path: Path) -> None:
    found = ask_toolchain(CONFIG, desk.lock, tmp_path / "elsewhere", desk.resolver)
    assert (found.standing, words_for(found)) == (
        Standing.UNKNOWN,
        "apt needs the locked base, which is not whole in this state",
    )
