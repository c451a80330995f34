"""The Debian toolchain: nothing that its container says is believed; what is missing or unsigned is named."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from backend.commands import Feed
from backend.runner import Ending, Outcome
from builder.resolve.debian import fetch_debian, keep_debian, offered_debian, resolve_debian
from builder.resolve.exchange import Resolver, Secrets
from builder.settings.host_apt import AptSources, read_host_sources
from builder.storage.store import ContentStore
from images.basefacts import DebianFacts
from images.credentials import Secret
from images.digests import Digest
from images.errors import BuilderError, ExitCode, HostError, UsageError
from images.lock import BaseLock
from images.toolchain import DpkgAction
from tests.fakes.debs import Package
from tests.fakes.locks import AMD64, BASE_DIGEST, SIGNER, base_image, make_lock, with_toolchain

FACTS = DebianFacts(
    status=b"Package: git\nStatus: install ok installed\n", distribution="debian", codename="bookworm",
    aliases={}, directories={},
)  # fmt: skip
MAKE = Package("make", "4.3-4.1", fields={"Depends": "libguile (>= 3) | other, libc6"})
GUILE = Package("libguile", "1:3.0~8-2", fields={"Pre-Depends": "libgc1"})
GC = Package("libgc1", "1.0", architecture="all", fields={"Provides": "gc (= 1.0)"})
ASKED = ("git", "make")


def said(one: Package, **changes: object) -> dict[str, Any]:
    raw = one.artifact()
    return {
        "name": one.name,
        "version": one.version,
        "architecture": one.architecture,
        "size": raw.size,
        "sha256": raw.integrity.hex,
        "signer": SIGNER,
        **changes,
    }


def answer(*packages: Package) -> dict[str, Any]:
    names = [one.name for one in packages]
    return {
        "packages": [said(one) for one in packages],
        "steps": [{"action": "unpack", "names": names}, {"action": "configure", "names": names}],
    }


def tar_of(members: list[tuple[str, bytes]]) -> bytes:
    """As the container writes it: one name may come more than once."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


@dataclass
class Archive:
    """A container that answers as it is told, and keeps what it was asked."""

    answers: list[dict[str, Any]]
    packages: tuple[Package, ...] = (GC, GUILE, MAKE)
    error: dict[str, str] | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    spoil: Callable[[bytes], bytes] = bytes

    def __call__(self, job: bytes, result: Path, _: Callable[[bytes], None], _feed: Feed) -> Outcome:
        with tarfile.open(fileobj=io.BytesIO(job)) as archive:
            file = archive.extractfile("job.json")
            assert file is not None
            self.asked.append(json.load(file)["debian"])
        members: list[tuple[str, bytes]] = []
        if self.error is None:
            for one in self.answers:
                members.append(("debian.json", json.dumps(one).encode()))
                if all(question["bring"] for question in self.asked[-1]["resolve"]):
                    members += [("package.deb", self.spoil(deb.to_bytes())) for deb in self.packages]
            for group in self.asked[-1]["fetch"]:
                named = {deb.name: deb for deb in self.packages}
                members += [
                    ("package.deb", self.spoil(named[item["name"]].to_bytes())) for item in group["packages"]
                ]
        members.append(("result.json", json.dumps({"schema": 1, "error": self.error}).encode()))
        result.write_bytes(tar_of(members))
        return Outcome(ending=Ending.EXITED, exit_code=0)


@pytest.fixture
def desk(tmp_path: Path) -> Callable[[Archive], Resolver]:
    store = ContentStore(tmp_path / "store")
    store.root.mkdir()
    (tmp_path / "staging").mkdir()

    def resolver(archive: Archive) -> Resolver:
        return Resolver(
            run=archive,
            secrets=Secrets(),
            store=store,
            staging=tmp_path / "staging",
            on_progress=lambda _: None,
            apt=lambda: AptSources((("host.list", "deb [signed-by=@KEY0@] x y z"),), (b"key",)),
        )

    return resolver


Desk = Callable[[Archive], Resolver]


def test_a_whole_toolchain(desk: Desk) -> None:
    archive = Archive([answer(GC, GUILE, MAKE)])
    resolver = desk(archive)
    found = resolve_debian(ASKED, {AMD64: FACTS}, resolver)
    assert (found.lock.suite, found.lock.asked) == ("bookworm", ASKED)
    tree = found.lock.tree(AMD64)
    assert tree.in_base == ("git",)
    assert [step.action for step in tree.steps] == [DpkgAction.UNPACK, DpkgAction.CONFIGURE]
    parents = {one.name: one.parents for one in found.artifacts}
    assert parents == {
        "make:amd64": ("toolchain.debian",),
        "libguile:amd64": ("deb:make:amd64@4.3-4.1",),
        "libgc1:all": ("deb:libguile:amd64@1:3.0~8-2",),
    }
    assert all(one.signer == SIGNER and resolver.store.intact(one.integrity) for one in found.artifacts)
    (asked,) = archive.asked
    assert asked["resolve"] == [
        {
            "architecture": "amd64",
            "distribution": "debian",
            "codename": "bookworm",
            "names": list(ASKED),
            "status": FACTS.status.decode(),
            "bring": True,
        }
    ]
    assert asked["sources"] == [{"name": "host.list", "content": "deb [signed-by=@KEY0@] x y z"}]


def test_what_replaces_a_package_of_the_base_has_a_parent_too(desk: Desk) -> None:
    breaking = Package("make", "4.3-4.1", fields={"Breaks": "libgc1 (<< 1.0)"})
    archive = Archive([answer(GC, breaking)], packages=(GC, breaking))
    found = resolve_debian(("make",), {AMD64: FACTS}, desk(archive))
    assert {one.name: one.parents for one in found.artifacts}["libgc1:all"] == ("deb:make:amd64@4.3-4.1",)


def without(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda found: found["packages"][0].pop(key)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (without("signer"), "no signature"),
        (lambda found: found["packages"][0].update(signer="me"), "no signature"),
        (without("sha256"), "another form"),
        (without("version"), "another form"),
        (without("size"), "another form"),
        (lambda found: found["packages"][0].update(name="../x"), "another form"),
        (lambda found: found["packages"][0].update(sha256="0" * 64), "the bytes hash to"),
        (lambda found: found["packages"][0].update(version="2.0"), "its control file says"),
        (lambda found: found["packages"].append(said(MAKE)), "another form"),
        (lambda found: found.update(packages=None), "another form"),
        (lambda found: found.update(steps=None), "another form"),
        (lambda found: found["steps"][0].update(action="remove"), "another form"),
        (lambda found: found["steps"][0]["names"].append("zsh"), "another form"),
        (lambda found: found["packages"].pop(), "another form"),
    ],
)
def test_an_answer_of_another_form_is_refused(
    desk: Desk, edit: Callable[[dict[str, Any]], object], words: str
) -> None:
    found = answer(GC, GUILE, MAKE)
    edit(found)
    with pytest.raises(BuilderError, match=words) as refused:
        resolve_debian(ASKED, {AMD64: FACTS}, desk(Archive([found])))
    assert refused.value.code in (ExitCode.PIN, ExitCode.HOST)


@pytest.mark.parametrize(
    ("code", "item", "exit_code", "words"),
    [
        ("E404", "no-such-package", ExitCode.PIN, "no-such-package is not in the Debian archive"),
        ("EUNSIGNED", "make", ExitCode.PIN, "no signature of a key that is trusted"),
        ("EREMOVES", "git", ExitCode.PIN, "would have to remove git"),
        ("EAPT", "", ExitCode.PIN, "cannot resolve"),
        ("ENOSUITE", "trixie", ExitCode.USAGE, "do not have the base's suite trixie"),
        ("ENOINDEX", "", ExitCode.USAGE, "a suite that is not there"),
        ("E401", "", ExitCode.NETWORK, "credentials"),
        ("E429", "", ExitCode.NETWORK, "slow down"),
        ("E503", "", ExitCode.NETWORK, "failed"),
        ("ECERT", "", ExitCode.NETWORK, "certificate"),
        ("ENOTFOUND", "", ExitCode.NETWORK, "cannot be reached"),
        ("ECONNRESET", "", ExitCode.NETWORK, "broke the connection off"),
        ("EINTEGRITY", "make@1", ExitCode.PIN, "not those that were pinned"),
        ("ENOSPC", "", ExitCode.STATE, "disk is full"),
        ("EBADOUTPUT", "", ExitCode.HOST, "another form"),
    ],
)
def test_each_failure_of_apt_has_its_code_and_a_way_on(
    desk: Desk, code: str, item: str, exit_code: ExitCode, words: str
) -> None:
    archive = Archive([], error={"code": code, "item": item})
    with pytest.raises(BuilderError, match=words) as refused:
        resolve_debian(ASKED, {AMD64: FACTS}, desk(archive))
    assert refused.value.code is exit_code
    assert refused.value.hint


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (None, "has no dpkg"),
        (DebianFacts(b"x", "alpine", "v3", {}, {}), "ID=alpine"),
        (DebianFacts(b"x", "debian", "", {}, {}), "VERSION_CODENAME=nothing"),
        (DebianFacts(b"\xff", "debian", "bookworm", {}, {}), "not UTF-8"),
    ],
)
def test_a_base_that_is_no_debian_is_refused(desk: Desk, facts: DebianFacts | None, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        resolve_debian(ASKED, {AMD64: facts}, desk(Archive([])))
    assert refused.value.code is ExitCode.USAGE


def test_what_apt_would_add_now_is_asked_without_fetching_a_package(desk: Desk) -> None:
    archive = Archive([answer(GC, GUILE, MAKE)])
    resolver = desk(archive)
    assert offered_debian(ASKED, {AMD64: FACTS}, resolver) == {
        AMD64: {"libgc1:all": "1.0", "libguile:amd64": "1:3.0~8-2", "make:amd64": "4.3-4.1"}
    }
    (question,) = archive.asked[0]["resolve"]
    assert question["bring"] is False
    assert not resolver.store.holds(MAKE.artifact().integrity)


@pytest.mark.parametrize("answers", [[], [answer(MAKE), answer(MAKE)]])
def test_another_number_of_answers_than_of_questions_is_refused(
    desk: Desk, answers: list[dict[str, Any]]
) -> None:
    with pytest.raises(HostError, match="than was asked"):
        offered_debian(ASKED, {AMD64: FACTS}, desk(Archive(answers)))


def test_a_fetch_resolves_nothing_and_checks_each_package(desk: Desk) -> None:
    archive = Archive([])
    resolver = desk(archive)
    debs = [GC.artifact(), MAKE.artifact()]
    assert fetch_debian(debs, "bookworm", resolver) == 2
    assert archive.asked[0]["resolve"] == []
    assert archive.asked[0]["fetch"][0]["packages"] == [
        {"name": "libgc1", "architecture": "all", "version": "1.0"},
        {"name": "make", "architecture": "amd64", "version": "4.3-4.1"},
    ]
    assert fetch_debian(debs, "bookworm", resolver) == 0
    assert len(archive.asked) == 1


def test_another_package_under_the_same_version_is_refused(desk: Desk) -> None:
    archive = Archive([], spoil=lambda raw: raw + b"\n")
    resolver = desk(archive)
    with pytest.raises(BuilderError, match=r"make:amd64@4.3-4.1: the bytes hash to") as refused:
        fetch_debian([MAKE.artifact()], "bookworm", resolver)
    assert refused.value.code is ExitCode.PIN
    assert not resolver.store.holds(MAKE.artifact().integrity)


def test_a_lock_keeps_its_toolchain_while_names_and_base_stay() -> None:
    lock = with_toolchain(make_lock())
    assert lock.toolchain is not None
    kept = keep_debian(("git", "make"), lock.base, lock)
    assert kept is not None
    assert kept.lock == lock.toolchain
    assert {one.id for one in kept.artifacts} == {one.id for one in lock.artifacts if one.kind == "deb"}
    other = BaseLock("b", "", True, BASE_DIGEST, None, (base_image(manifest=Digest.of(b"another")),))
    assert keep_debian(("git", "make"), other, lock) is None
    assert keep_debian(("make",), lock.base, lock) is None
    assert keep_debian(("make",), lock.base, make_lock()) is None
    assert keep_debian(("make",), lock.base, None) is None


# --- the sources of the machine that asks


def test_sources_and_the_keys_that_they_name(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    key = tmp_path / "own.asc"
    key.write_bytes(b"-----BEGIN")
    (tmp_path / "sources.list").write_text(f"deb [arch=amd64 signed-by={key}] http://a.test x main\n")
    (tmp_path / "sources.list.d" / "debian.sources").write_text(
        f"Types: deb\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\nSigned-By: {key}\n"
    )
    (tmp_path / "sources.list.d" / "old.list.save").write_text("deb http://b.test y main\n")
    found = read_host_sources(tmp_path)
    assert found.files == (
        ("sources.list", "deb [arch=amd64 signed-by=@KEY0@] http://a.test x main\n"),
        (
            "debian.sources",
            "Types: deb\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\nSigned-By: @KEY0@\n",
        ),
    )
    assert found.keys == (b"-----BEGIN",)
    assert "a.test" not in repr(found)


def test_the_operators_own_list_wins_over_the_machines_and_an_address_needs_none(
    desk: Desk, tmp_path: Path
) -> None:
    key = tmp_path / "own.gpg"
    key.write_bytes(b"own key")
    archive = Archive([])
    own = Secret(f"deb [signed-by={key}] https://user:hunter2@a.test x main\n".encode())
    for secrets, sources in (
        (Secrets(apt_sources=own), ["given.list"]),
        (Secrets(apt_sources=own, registries=(("debian", "https://b.test"),)), ["given.list"]),
        (Secrets(apt_sources=Secret(b"Types: deb\n")), ["given.sources"]),
        (Secrets(registries=(("debian", "https://b.test"),)), []),
        (Secrets(registries=(("npm", "https://b.test"),)), ["host.list"]),
    ):
        with pytest.raises(BuilderError):
            resolve_debian(ASKED, {AMD64: FACTS}, replace(desk(archive), secrets=secrets))
        assert [one["name"] for one in archive.asked[-1]["sources"]] == sources
    first = archive.asked[0]
    assert first["sources"][0]["content"].startswith("deb [signed-by=@KEY0@] https://user")
    assert base64.b64decode(first["keys"][0]) == b"own key"
    assert "hunter2" not in repr(AptSources((("x", "hunter2"),)))


def test_a_machine_without_apt_has_no_sources(tmp_path: Path) -> None:
    assert read_host_sources(tmp_path / "nothing") == AptSources()


def test_a_key_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text("deb [signed-by=/no/such/key.gpg] http://a.test x main\n")
    with pytest.raises(UsageError, match="cannot be read") as refused:
        read_host_sources(tmp_path)
    assert refused.value.where == "/no/such/key.gpg"
