"""`builder doctor`: a line for every question whatever fails, and exit 3 when required mode cannot hold."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from backend.probe import HostCheck, HostProbe, ProbeName, ProbeState
from builder import doctor
from builder.cli import main_inner
from builder.cli.verbs import doctor_verb
from builder.workshop import Workshop
from images.errors import BuilderError, ExitCode, HostError, UsageError
from tests.fakes.admitted import probe_of
from tests.fakes.engine import DOCKER_FACTS, FakeEngine

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "docs/reference/schemas/doctor.schema.json").read_text())
FACTS = dataclasses.replace(DOCKER_FACTS, endpoint="store:/x")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """main_inner scrubs it."""
    for name, value in dict(os.environ).items():
        monkeypatch.setenv(name, value)


def examined(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    engine: FakeEngine | HostError,
    probe: HostProbe | BuilderError | None = None,
) -> tuple[int, dict[str, Any], str]:
    def connect(_: object) -> FakeEngine:
        if isinstance(engine, HostError):
            raise engine
        return engine

    def probe_engine(*_: object, **__: object) -> HostProbe:
        if isinstance(probe, HostProbe):
            return probe
        assert probe is not None
        raise probe

    monkeypatch.setattr(Workshop, "connect", connect)
    monkeypatch.setattr(doctor, "probe_engine", probe_engine)
    code = main_inner(
        ["doctor", "--json", "--state", str(tmp_path / "state")], {"HOME": str(tmp_path), "PATH": "/usr/bin"}
    )
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    jsonschema.validate(document, SCHEMA)
    assert [line["name"] for line in document["lines"]] == [*ProbeName, *HostCheck]
    assert all(
        f"{line['state']:<12} {line['name']}: {line['detail']}" in printed.err for line in document["lines"]
    )
    return code, document, printed.err


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    (tmp_path / "fake").mkdir()
    return FakeEngine(tmp_path / "fake", told=FACTS)


def good() -> HostProbe:
    """Everything held, ids included."""
    return dataclasses.replace(probe_of(facts=FACTS), uid_map=((0, 100_000, 65_536),))


def test_a_host_on_which_required_mode_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], engine: FakeEngine
) -> None:
    code, document, _ = examined(tmp_path, monkeypatch, capsys, engine, good())
    assert code == ExitCode.DONE
    assert document["required_mode"]
    assert document["engine"] == {
        "product": "docker",
        "version": FACTS.version,
        "api_version": FACTS.api_version,
        "endpoint": FACTS.endpoint,
        "rootless": True,
    }


@pytest.mark.parametrize("name", list(ProbeName))
def test_each_line_that_is_not_held_is_exit_3_with_its_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    engine: FakeEngine,
    name: ProbeName,
) -> None:
    probe = dataclasses.replace(probe_of(name, facts=FACTS), uid_map=((0, 100_000, 65_536),))
    code, document, said = examined(tmp_path, monkeypatch, capsys, engine, probe)
    assert (code, document["required_mode"]) == (ExitCode.HOST, False)
    assert f"{name.value}: as scripted -> do something about it" in said


def test_what_a_policy_may_accept_is_no_exit_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], engine: FakeEngine
) -> None:
    probe = good()
    lines = tuple(
        dataclasses.replace(line, state=ProbeState.ACCEPTABLE) if line.name is ProbeName.CPU_LIMIT else line
        for line in probe.lines
    )
    probe = dataclasses.replace(probe, lines=lines)
    code, document, _ = examined(tmp_path, monkeypatch, capsys, engine, probe)
    assert (code, document["required_mode"]) == (ExitCode.DONE, True)


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("engine-identity", ProbeName.IDENTITY),  # Podman under the name of docker
        ("engine-remote", ProbeName.LOCAL),  # ssh or tcp
        ("engine", ProbeName.IDENTITY),  # nothing answers
    ],
)
def test_without_an_engine_every_line_is_there_and_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reason: str,
    name: ProbeName,
) -> None:
    broken = HostError("it does not answer", hint="start it", reason=reason)
    code, document, _ = examined(tmp_path, monkeypatch, capsys, broken)
    assert (code, document["engine"], document["required_mode"]) == (ExitCode.HOST, None, False)
    lines = {line["name"]: line for line in document["lines"]}
    assert lines[name]["state"] == "not-held"
    assert (lines[name]["detail"], lines[name]["remedy"]) == ("it does not answer", "start it")
    others = {lines[other]["state"] for other in ProbeName if other is not name}
    assert others == {"unknown"}


@pytest.mark.parametrize("broken", [HostError("cannot start", hint="x"), UsageError("no base", hint="x")])
def test_an_engine_that_cannot_be_probed_is_judged_by_its_own_words(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    engine: FakeEngine,
    broken: BuilderError,
) -> None:
    code, document, _ = examined(tmp_path, monkeypatch, capsys, engine, broken)
    assert (code, document["required_mode"]) == (ExitCode.HOST, False)
    lines = {line["name"]: line for line in document["lines"]}
    assert lines["engine-identity"]["state"] == lines["storage-driver"]["state"] == "held"
    assert lines["image-id"]["detail"] == broken.what
    assert lines["death-watch"]["state"] == "unknown"


def test_it_removes_what_dead_processes_left_before_it_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], engine: FakeEngine
) -> None:
    done: list[str] = []
    monkeypatch.setattr(doctor_verb, "remove_leftovers", lambda *_: done.append("removed"))
    probe = good()

    def probe_engine(*_: object, **__: object) -> HostProbe:
        done.append("probed")
        return probe

    examined(tmp_path, monkeypatch, capsys, engine, probe)
    done.clear()
    monkeypatch.setattr(doctor, "probe_engine", probe_engine)
    main_inner(["doctor", "--state", str(tmp_path / "state")], {"HOME": str(tmp_path), "PATH": "/usr/bin"})
    assert done == ["removed", "probed"]
