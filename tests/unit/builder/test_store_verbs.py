"""`builder store` from outside: lines to paste, digests to compare, one JSON object of a published shape."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from builder.cli import main_inner
from builder.state import open_state
from builder.storage.adding import archive_name
from builder.storage.store import ContentStore
from images.additions import ADDITION_NAME
from images.digests import Digest, Integrity
from images.errors import ExitCode, UsageError
from provenance.layout import list_images
from tests.fakes.states import Team, digests_of, make_team

ROOT = Path(__file__).resolve().parents[3]
SCHEMAS = ROOT / "docs/reference/schemas"
EXPORT = json.loads((SCHEMAS / "export.schema.json").read_text())
BUILDER = Path(sys.executable).with_name("builder")


class Desk:
    """A place to type commands at, with a state of its own."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys = root, capsys
        self.state = root / "desk"
        self.words = ["--state", str(self.state), "--config-dir", str(root / "desk-config")]

    def type(self, *words: str) -> tuple[int, str, str]:
        code = main_inner([*words, *self.words], {"HOME": str(self.root), "PATH": os.environ["PATH"]})
        told = self.capsys.readouterr()
        return code, told.out, told.err

    def json(self, *words: str) -> dict[str, Any]:
        code, out, _ = self.type(*words, "--json")
        assert code == 0
        found: dict[str, Any] = json.loads(out)
        return found

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(BUILDER), *words, *self.words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr("builder.cli._scrub_environment", lambda _: None)
    monkeypatch.setattr("builder.cli.signal.signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path, capsys)


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return make_team(tmp_path)


def archive_of(team: Team) -> Path:
    settings = team.root / "config" / "settings.toml"
    settings.parent.mkdir(exist_ok=True)
    tools = team.lock.tools
    settings.write_text(
        f'schema = 1\nbuild_container = "{tools.build_container}"\nresolver = "{tools.resolver}"\n'
    )
    path = team.root / "team.tar"
    words = ["store", "export", str(path), str(team.image.digest)]
    words += ["--state", str(team.state.root), "--config-dir", str(settings.parent)]
    done = subprocess.run([str(BUILDER), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{Digest.of(path.read_bytes())}\n"
    return path


def test_add_prints_a_line_of_each(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "ripgrep-14.1.0-x86_64.tar.gz").write_bytes(b"one")
    (tmp_path / "Größe.bin").write_bytes(b"two")
    code, out, err = desk.type("store", "add", "ripgrep-14.1.0-x86_64.tar.gz", "Größe.bin")
    hashes = [hashlib.sha256(data).hexdigest() for data in (b"one", b"two")]
    assert code == 0, err
    assert out == (f'ripgrep = {{ sha256 = "{hashes[0]}" }}\ngrosse = {{ sha256 = "{hashes[1]}" }}\n')
    store = ContentStore(open_state(desk.state).store)
    assert all(store.intact(Integrity("sha256", one)) for one in hashes)
    assert store.path_of(Integrity("sha256", hashes[0])).stat().st_mode & 0o777 == 0o444
    document = desk.json("store", "add", "Größe.bin")
    assert document["added"] == [
        {
            "file": "Größe.bin",
            "sha256": hashes[1],
            "size": 3,
            "line": f'grosse = {{ sha256 = "{hashes[1]}" }}',
        }
    ]
    assert len(list((desk.state / "references").iterdir())) == 2


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("kit-1.2.tar.gz", "kit"),
        ("node-v22.23.5-linux-x64.tar.xz", "node"),
        ("tool_2.0_amd64.tgz", "tool"),
        ("python3-tools.tar", "python3-tools"),
        ("7zip-24.tar", "7zip"),
        ("2048.tar", "2048"),
        ("x86_64-tools.tar.gz", "x86-64-tools"),
        ("-1.2.tar", "archive"),
        ("日本.tar", "archive"),
        ("a" * 60, "a" * 40),
    ],
)
def test_a_name_is_one_that_builder_toml_takes_and_stays_when_the_version_moves(file: str, name: str) -> None:
    assert archive_name(Path(file)) == name
    assert re.fullmatch(ADDITION_NAME, name)


def test_lines_that_are_added_together_can_be_pasted_together(desk: Desk, tmp_path: Path) -> None:
    names = ["kit-1.2.tar", "kit-1.3.tar", "kit-1.4.tar"]
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    code, out, err = desk.type("store", "add", *names)
    assert code == 0, err
    assert list(tomllib.loads(out)) == ["kit", "kit-2", "kit-3"]


@pytest.mark.parametrize("kind", ["directory", "link", "pipe", "missing", "empty", "too large"])
def test_add_takes_regular_files_alone_and_then_all_or_none(
    desk: Desk, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(b"good")
    if kind == "directory":
        bad.mkdir()
    elif kind == "link":
        bad.symlink_to(good)
    elif kind == "pipe":
        os.mkfifo(bad)
    elif kind == "empty":
        bad.touch()
    elif kind == "too large":
        bad.write_bytes(b"12345")
        monkeypatch.setattr("builder.storage.adding.MAX_ADDED_BYTES", 4)
    code, out, err = desk.type("store", "add", "good", "bad")
    assert (code, out) == (ExitCode.USAGE, "")
    assert "error: bad: " in err
    assert "hint: " in err
    assert not [path for path in (desk.state / "store").rglob("*") if path.is_file()]


def test_a_file_that_grows_while_it_is_added_is_refused_whole(tmp_path: Path) -> None:
    class Growing:
        def read(self, _size: int) -> bytes:
            return b"more"

    store = ContentStore(tmp_path)
    with pytest.raises(UsageError, match="more than 9 bytes"):
        store.add(Growing(), what="x", limit=9)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_there_and_back(desk: Desk, team: Team) -> None:
    path = archive_of(team)
    first = desk.json("store", "import", str(path))["imported"]
    assert first["image"] == team.image.digest
    assert first["lock"] == Digest.of(team.raw_lock)
    assert first["changed"]
    assert [line.partition(" ")[0] for line in first["settings"]] == ["base", "build_container", "resolver"]
    again = desk.json("store", "import", str(path))["imported"]
    assert not again["changed"]
    code, out, err = desk.type("store", "import", str(path))
    assert (code, out) == (0, f"{team.image.digest}\n")
    assert "settings.toml: to build with what came, write: build_container" in err
    assert "nothing of it is trusted yet: builder verify" in err
    with path.open("rb") as file:
        file.seek(512)
        raw = file.read().split(b"\n", 1)[0]
    jsonschema.validate(json.loads(raw), EXPORT)
    # What came goes on, the same bytes: with the tools of the lock where this state has none of its own.
    document = desk.json("store", "export", "again.tar", team.image.digest)["exported"]
    assert document["archive"] == Digest.of(path.read_bytes())


def test_what_cannot_be_exported_says_what_to_do(desk: Desk, team: Team) -> None:
    code, _, err = desk.type("store", "export", "a.tar")
    assert code == ExitCode.USAGE
    assert "builder.lock" in err
    code, _, err = desk.type("store", "export", "a.tar", "latest")
    assert code == ExitCode.USAGE
    code, _, err = desk.type("store", "export", "a.tar", str(team.image.digest))
    assert code == ExitCode.VERIFY
    assert "hint: " in err
    assert not Path("a.tar").exists()


def test_two_imports_at_once(desk: Desk, team: Team) -> None:
    path = archive_of(team)
    both = [desk.start("store", "import", str(path), "--json") for _ in range(2)]
    told = [one.communicate(timeout=120) for one in both]
    assert [one.returncode for one in both] == [0, 0], told
    found = [json.loads(out)["imported"] for out, _ in told]
    assert found[0]["image"] == found[1]["image"] == team.image.digest
    state = open_state(desk.state)
    assert team.image.digest in {one.digest for one in list_images(state.layout)}
    assert not list(state.staged.iterdir())
    names = [one.digest for one in list_images(state.layout)]
    assert len(names) == len(set(names))


def test_killed_in_the_middle(desk: Desk, tmp_path: Path) -> None:
    """Nothing has a name, and what was staged goes with the next one."""
    team = make_team(tmp_path, filler=os.urandom(32 << 20))  # it takes a while to write
    path = archive_of(team)
    state = open_state(desk.state)
    process = desk.start("store", "import", str(path))
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        if list(state.staged.glob("import-*/layout/blobs/sha256/*")):
            process.send_signal(signal.SIGKILL)
            break
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert list(state.staged.iterdir())
    assert not digests_of(state)
    assert list_images(state.layout) == ()
    code, out, _ = desk.type("store", "import", str(path))
    assert (code, out) == (0, f"{team.image.digest}\n")
    assert not list(state.staged.iterdir())
