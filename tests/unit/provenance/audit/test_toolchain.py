"""The audit of a toolchain layer: explained by packages, by a replay, or found."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import BinaryIO

import pytest

from images.accounts import Accounts
from images.basefacts import DebianFacts
from images.lock import EPOCH, Artifact
from images.toolchain import DpkgAction
from images.toolchain_plan import PlannedStep, ToolchainPlan
from provenance.audit.compare import Findings
from provenance.audit.deb_index import DebIndex, index_deb
from provenance.audit.layertar import Entry, read_entries
from provenance.audit.report import DifferenceKind, Origin
from provenance.audit.toolchain import ToolchainComparison, by_path, packaged_bytes, wanted_toolchain
from tests.fakes.audited import Made, layer_bytes
from tests.fakes.debs import Package

TOOL = Package(
    "tool",
    files={"postinst": b"#!/bin/sh\nldconfig\n", "conffiles": b"/etc/tool.conf\n"},
    members=(
        ("bin/", None, 0o755),
        ("bin/tool", b"\x7fELF tool", 0o755),
        ("etc/tool.conf", b"a = 1\n", 0o644),
        ("usr/bin/", None, 0o755),
        ("usr/bin/agent", b"\x7fELF agent", 0o755),
        ("usr/bin/alias", "tool", 0o777),
        ("usr/share/tool/", None, 0o750),
        ("usr/share/tool/gone", b"taken away by the script\n", 0o644),
    ),
    hard_links=(("usr/bin/same", "usr/bin/agent"),),
)
LIBRARY = Package(
    "libtool", fields={"Multi-Arch": "same"}, members=(("usr/lib/libtool.so", b"\x7fELF so", 0o644),)
)
PACKAGES = {one.artifact().id: one for one in (TOOL, LIBRARY)}
BASE = DebianFacts(
    status=b"Package: base-files\n",
    distribution="debian",
    codename="bookworm",
    aliases={"bin": "usr/bin", "lib": "usr/lib"},
    directories={"usr": (0o755, 0, 0), "usr/bin": (0o755, 0, 0), "var/lib": (0o751, 0, 7)},
)
ACCOUNTS = Accounts(b"root:x:0:0::/root:/bin/sh\n", b"root:x:0:\n")
PLAN = ToolchainPlan(
    (PlannedStep(DpkgAction.UNPACK, tuple(one.artifact() for one in PACKAGES.values())),), ACCOUNTS
)

# What dpkg makes of it, and what the script wrote: a cache, a mode, dpkg's status, an account.
INFO = "var/lib/dpkg/info"
LAYER = [
    Made("etc", b"5", 0o755),
    Made("etc/group", content=ACCOUNTS.group + b"_tool:x:100:\n"),
    Made("etc/ld.so.cache", content=b"cache"),
    Made("etc/passwd", content=ACCOUNTS.passwd),
    Made("etc/tool.conf", content=b"a = 1\n"),
    Made("usr", b"5", 0o755),
    Made("usr/bin", b"5", 0o755),
    Made("usr/bin/agent", mode=0o2755, gid=100, content=b"\x7fELF agent"),
    Made("usr/bin/alias", b"2", 0o777, link="tool"),
    Made("usr/bin/same", b"1", 0o2755, gid=100, link="usr/bin/agent"),
    Made("usr/bin/tool", mode=0o755, content=b"\x7fELF tool"),
    Made("usr/lib", b"5", 0o755),
    Made("usr/lib/libtool.so", content=b"\x7fELF so"),
    Made("usr/share", b"5", 0o755),
    Made("usr/share/tool", b"5", 0o750),
    Made("var", b"5", 0o755),
    Made("var/lib", b"5", 0o751, gid=7),
    Made("var/lib/.wh.old", content=b""),
    Made("var/lib/dpkg", b"5", 0o755),
    Made(INFO, b"5", 0o755),
    Made(f"{INFO}/libtool:amd64.list", content=b"/.\n/usr/lib/libtool.so\n"),
    Made(f"{INFO}/tool.conffiles", content=b"/etc/tool.conf\n"),
    Made(
        f"{INFO}/tool.list",
        content=b"/.\n/bin\n/bin/tool\n/etc/tool.conf\n/usr/bin\n/usr/bin/agent\n/usr/share/tool\n"
        b"/usr/share/tool/gone\n/usr/bin/same\n/usr/bin/alias\n",
    ),
    Made(f"{INFO}/tool.postinst", mode=0o755, content=b"#!/bin/sh\nldconfig\n"),
    Made("var/lib/dpkg/status", content=b"Package: tool\n"),
]
REPLAYED = {
    "etc/group",
    "etc/ld.so.cache",
    "usr/bin/agent",
    "usr/bin/same",
    "var/lib/.wh.old",
    "var/lib/dpkg/status",
}


@contextmanager
def opened(artifact: Artifact) -> Iterator[BinaryIO]:
    yield io.BytesIO(PACKAGES[artifact.id].to_bytes())


def indexes() -> list[DebIndex]:
    return [index_deb(one, opened) for one in PLAN.debs]


def entries(layer: list[Made]) -> Iterator[Entry]:
    return read_entries(iter([layer_bytes([replace(made, mtime=made.mtime or EPOCH) for made in layer])]))


def audit(layer: list[Made], *, replay: list[Made] | None = LAYER) -> Findings:
    findings = Findings(1)
    replayed = None if replay is None else by_path(entries(replay))
    wanted, packaged = wanted_toolchain(PLAN, indexes(), BASE), packaged_bytes(indexes())
    ToolchainComparison(wanted, packaged, replayed, EPOCH, findings).run(entries(layer))
    return findings


def test_an_honest_layer_is_explained_by_packages_and_replay() -> None:
    findings = audit(LAYER)
    assert findings.differences == []
    assert findings.unexplained_count == 0
    assert set(findings.replayed_paths) == REPLAYED
    assert findings.origins[Origin.REPLAYED] == len(REPLAYED)
    assert sum(findings.origins.values()) == findings.entries == len(LAYER)


def test_without_a_replay_just_these_are_unexplained() -> None:
    layer = [*LAYER, Made("usr/share/tool/gone", content=b"taken away by the script\n")]
    findings = audit(layer, replay=None)
    assert findings.differences == []
    assert set(findings.unexplained_paths) == REPLAYED


def change(path: str, **fields: object) -> Callable[[list[Made]], list[Made]]:
    def apply(layer: list[Made]) -> list[Made]:
        assert any(made.path == path for made in layer)
        return [replace(made, **fields) if made.path == path else made for made in layer]  # type: ignore[arg-type]

    return apply


def add(*more: Made) -> Callable[[list[Made]], list[Made]]:
    return lambda layer: [*layer, *more]


def drop(path: str) -> Callable[[list[Made]], list[Made]]:
    return lambda layer: [made for made in layer if made.path != path]


PLANTED: list[tuple[str, DifferenceKind, str, Callable[[list[Made]], list[Made]]]] = [
    ("a byte of a program", DifferenceKind.CHANGED, "usr/bin/tool", change("usr/bin/tool", content=b"evil")),
    (
        "a byte of a library",
        DifferenceKind.CHANGED,
        "usr/lib/libtool.so",
        change("usr/lib/libtool.so", content=b""),
    ),
    ("a conffile", DifferenceKind.CHANGED, "etc/tool.conf", change("etc/tool.conf", content=b"a = 2\n")),
    (
        "dpkg's status",
        DifferenceKind.EXTRA,
        "var/lib/dpkg/status",
        change("var/lib/dpkg/status", content=b"x"),
    ),
    (
        "dpkg's list",
        DifferenceKind.CHANGED,
        f"{INFO}/tool.list",
        change(f"{INFO}/tool.list", content=b"/.\n"),
    ),
    (
        "a maintainer script",
        DifferenceKind.CHANGED,
        f"{INFO}/tool.postinst",
        change(f"{INFO}/tool.postinst", content=b""),
    ),
    ("a script's file", DifferenceKind.EXTRA, "etc/ld.so.cache", change("etc/ld.so.cache", content=b"evil")),
    ("a script's mode", DifferenceKind.CHANGED, "usr/bin/agent", change("usr/bin/agent", mode=0o6755)),
    (
        "an account",
        DifferenceKind.CHANGED,
        "etc/passwd",
        change("etc/passwd", content=b"root::0:0::/:/bin/sh\n"),
    ),
    ("a mode", DifferenceKind.CHANGED, "usr/bin/tool", change("usr/bin/tool", mode=0o4755)),
    ("an owner", DifferenceKind.CHANGED, "usr/lib/libtool.so", change("usr/lib/libtool.so", uid=1000)),
    ("a link's target", DifferenceKind.CHANGED, "usr/bin/alias", change("usr/bin/alias", link="/tmp/x")),
    (
        "a link for a file",
        DifferenceKind.CHANGED,
        "usr/bin/tool",
        change("usr/bin/tool", kind=b"2", content=b"", link="sh"),
    ),
    ("a directory's mode", DifferenceKind.CHANGED, "usr/share/tool", change("usr/share/tool", mode=0o777)),
    ("a base directory's mode", DifferenceKind.CHANGED, "var/lib", change("var/lib", mode=0o777)),
    ("a time", DifferenceKind.CHANGED, "usr/bin/tool", change("usr/bin/tool", mtime=7)),
    (
        "a time of a script's file",
        DifferenceKind.EXTRA,
        "etc/ld.so.cache",
        change("etc/ld.so.cache", mtime=7),
    ),
    (
        "an attribute",
        DifferenceKind.CHANGED,
        "usr/bin/tool",
        change("usr/bin/tool", records={"SCHILY.xattr.security.capability": "x"}),
    ),
    (
        "an extra file",
        DifferenceKind.EXTRA,
        "usr/bin/evil",
        add(Made("usr/bin/evil", mode=0o755, content=b"x")),
    ),
    ("an extra whiteout", DifferenceKind.WHITEOUT, "usr/bin/.wh.sh", add(Made("usr/bin/.wh.sh"))),
    (
        "a file twice",
        DifferenceKind.DUPLICATE,
        "usr/bin/tool",
        add(Made("usr/bin/tool", mode=0o755, content=b"x")),
    ),
    ("a missing file", DifferenceKind.MISSING, "usr/bin/tool", drop("usr/bin/tool")),
    ("a missing script's file", DifferenceKind.MISSING, "etc/ld.so.cache", drop("etc/ld.so.cache")),
    (
        "a file that the script took away",
        DifferenceKind.CHANGED,
        "usr/share/tool/gone",
        add(Made("usr/share/tool/gone", content=b"other than the package's\n")),
    ),
]


@pytest.mark.parametrize(
    ("kind", "path", "plant"), [one[1:] for one in PLANTED], ids=[one[0] for one in PLANTED]
)
def test_what_is_planted_is_found(
    kind: DifferenceKind, path: str, plant: Callable[[list[Made]], list[Made]]
) -> None:
    findings = audit(plant(LAYER))
    assert (kind, path) in {(one.kind, one.path) for one in findings.differences}
    also = {"usr/bin/same"} if path == "usr/bin/agent" else set()  # its other name
    assert {one.path for one in findings.differences} == {path} | also


@pytest.mark.parametrize(("path", "plant"), [one[2:] for one in PLANTED], ids=[one[0] for one in PLANTED])
def test_without_a_replay_nothing_passes_in_silence(
    path: str, plant: Callable[[list[Made]], list[Made]]
) -> None:
    if plant(LAYER) == LAYER or (path == "etc/ld.so.cache" and len(plant(LAYER)) < len(LAYER)):
        return  # what nobody makes again, nobody can miss
    findings = audit(plant(LAYER), replay=None)
    assert path in {one.path for one in findings.differences} | set(findings.unexplained_paths)


@pytest.mark.parametrize("content", [b"evil", b"\x7fELF so"], ids=["of nobody", "of another file"])
def test_bytes_of_a_package_are_judged_without_a_replay(content: bytes) -> None:
    findings = audit(change("usr/bin/tool", content=content)(LAYER), replay=None)
    assert "usr/bin/tool" in {one.path for one in findings.differences}
    assert "usr/bin/tool" not in findings.unexplained_paths


PACKAGED = ["usr/bin/tool", "usr/lib/libtool.so", "etc/tool.conf", "usr/bin/agent", f"{INFO}/tool.postinst"]


@pytest.mark.parametrize("path", PACKAGED)
def test_a_replay_that_forges_the_same_byte_does_not_excuse_it(path: str) -> None:
    """Builder and verifier may use one build container: what it does to a package's file it does twice."""
    forged = change(path, content=b"evil")(LAYER)
    findings = audit(forged, replay=forged)
    assert path in {one.path for one in findings.differences}
    assert path not in findings.replayed_paths


def test_a_replay_may_show_another_package_s_file() -> None:
    """One package may replace or divert what another one brought."""
    replaced = change("etc/tool.conf", content=b"\x7fELF so")(LAYER)
    findings = audit(replaced, replay=replaced)
    assert findings.differences == []
    assert "etc/tool.conf" in findings.replayed_paths


def test_a_replay_that_made_more_shows_what_is_missing() -> None:
    findings = audit(LAYER, replay=[*LAYER, Made("etc/alternatives/tool", b"2", 0o777, link="/usr/bin/tool")])
    assert [(one.kind, one.path) for one in findings.differences] == [
        (DifferenceKind.MISSING, "etc/alternatives/tool")
    ]
