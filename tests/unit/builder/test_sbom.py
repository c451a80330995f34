"""`builder sbom`, and what goes into a bill at a build: licences of artifacts, and no credential."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from builder import verifying
from builder.building.billing import require_no_credential
from builder.cli import main_inner
from builder.cli.invocation import Invocation
from builder.resolve.tarball import declared_licence
from builder.resolve.wheel import read_wheel
from builder.state import open_state
from images.digests import canonical_json
from images.errors import CredentialFound, ExitCode, PinError
from images.key import content_key
from provenance.marks import pin_marks
from provenance.sbom import SbomFacts, make_sbom
from provenance.statements import Statement
from tests.fakes.locks import AMD64, make_lock
from tests.fakes.proved import NOW, World, make_world
from tests.fakes.tarballs import tarball
from tests.fakes.wheels import make_wheel

Type = Callable[..., tuple[int, str, str]]


def package(**fields: object) -> io.BytesIO:
    text = json.dumps({"name": "a", "version": "1.0.0", **fields}).encode()
    return io.BytesIO(tarball({"package/README.md": (b"x", 0o644), "package/package.json": (text, 0o644)}))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"license": "MIT"}, "MIT"),
        ({"license": {"type": "ISC", "url": "https://me:word@evil.example"}}, "ISC"),
        ({"licenses": [{"type": "MIT"}, {"type": "Apache-2.0"}]}, "MIT OR Apache-2.0"),
        ({"license": "a\nb\x1b[31m"}, "a b [31m"),
        ({"license": "x" * 5000}, "x" * 200),
        ({"license": 7}, ""),
        ({}, ""),
    ],
)
def test_the_licence_of_a_package_is_in_its_own_words(fields: dict[str, object], says: str) -> None:
    assert declared_licence(package(**fields), "a@1.0.0") == says


def test_a_damaged_package_is_refused() -> None:
    with pytest.raises(PinError, match="damaged"):
        declared_licence(io.BytesIO(b"\x1f\x8b nonsense"), "a@1.0.0")
    no_deflate = b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 20
    with pytest.raises(PinError, match="damaged"):
        declared_licence(io.BytesIO(no_deflate), "a@1.0.0")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("License-Expression: MIT OR Apache-2.0", "MIT OR Apache-2.0"),
        ("License: BSD", "BSD"),
        ("License: " + "all of it " * 100, ""),
        ("", ""),
    ],
)
def test_the_licence_of_a_wheel_is_in_its_own_words(line: str, says: str) -> None:
    raw = make_wheel("a", "1.0.0", {"a/__init__.py": b""}, licence=line)
    assert read_wheel(io.BytesIO(raw), "a-1.0.0-py3-none-any.whl").licence == says


def bill_with(licence: str) -> dict[str, Any]:
    lock = make_lock()
    return make_sbom(
        SbomFacts(
            image=content_key(lock, AMD64),
            image_name="team/agents",
            platform=AMD64,
            lock=lock,
            key=content_key(lock, AMD64),
            builder_id="urn:uuid:0",
            version="0.1.0",
            licences={"npm:chalk@5.6.2": licence},
        )
    )


@pytest.mark.parametrize(
    "licence",
    [
        "see https://ci:" + "hunter2hunter2" + "@git.example/licence",
        "ghp_" + "0123456789abcdefghij" * 2,
        "-----BEGIN OPENSSH PRIVATE KEY-----" + "A" * 70,
    ],
)
def test_a_credential_in_a_bill_is_found_and_never_shown(licence: str) -> None:
    with pytest.raises(CredentialFound) as found:
        require_no_credential(bill_with(licence))
    said = f"{found.value} {found.value.hint}"
    assert "hunter2" not in said
    assert "0123456789" not in said
    require_no_credential(bill_with("MIT"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    state = open_state(tmp_path / "state")
    made = make_world(state.root)
    pin_marks(state.marks, made.policy)
    return made


@pytest.fixture
def type_it(
    world: World, typed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Type:
    def now(_invocation: Invocation) -> datetime:
        return NOW

    monkeypatch.setattr(Invocation, "now", now)
    monkeypatch.setattr(verifying, "_compare_config", lambda *_: None)  # the tests' base holds no tools

    def run(*words: str) -> tuple[int, str, str]:
        places = ("--state", str(world.root), "--policy", str(world.policy.path))
        argv = ["sbom", str(world.image.digest), *words, *places]
        return main_inner(argv, {"HOME": str(typed)}), *capsys.readouterr()

    return run


def signed(world: World) -> Statement:
    return world.prove(sbom=True)["sbom"].statement


def test_it_is_printed_and_written_as_it_was_signed(type_it: Type, world: World, tmp_path: Path) -> None:
    statement = signed(world)
    predicate = json.loads(statement.predicate_json)
    code, out, _ = type_it()
    assert (code, json.loads(out)) == (ExitCode.DONE, predicate)
    code, out, _ = type_it("-o", str(tmp_path / "bill.json"))
    assert (code, out) == (ExitCode.DONE, f"{statement.digest}\n")
    assert (tmp_path / "bill.json").read_bytes() == canonical_json(predicate)
    code, out, _ = type_it("--json")
    found = json.loads(out)
    assert (found["sbom"], found["components"]) == (predicate, len(predicate["components"]))


def test_an_image_without_one_says_how_to_make_one(type_it: Type, world: World) -> None:
    world.prove()
    code, out, err = type_it()
    assert (code, out) == (ExitCode.USAGE, "")
    assert "builder build --no-cache" in err


def test_of_an_image_that_is_not_verified_nothing_is_printed(
    type_it: Type, world: World, tmp_path: Path
) -> None:
    world.prove(without=("scan",))
    code, out, _ = type_it("-o", str(tmp_path / "bill.json"))
    assert (code, out) == (ExitCode.VERIFY, "")
    assert not (tmp_path / "bill.json").exists()
