"""The operator's sources: 0600 files of his own and descriptors; all else is refused without repeating it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backend.projection.credentials import MAX_CREDENTIAL_BYTES, Credential
from backend.projection.routes import Route
from backend.requests import LaunchClass
from builder.cli import main_inner
from builder.credentials import (
    kept_sources,
    read_server_secrets,
    read_sources,
    server_secret_descriptors,
    sources_of,
)
from builder.launching import RunRequest, launch_request
from builder.settings.settings_file import parse_settings
from images.errors import BuilderError, ExitCode, LaunchRefused, UsageError
from provenance.policy import SecretPlace
from tests.fakes.admitted import NOW
from tests.fakes.policies import policy_for
from tests.fakes.projected import credential, dummy, file_of, named

KEY = Route.CLAUDE_API_KEY


def given(path: Path, route: Route = KEY) -> tuple[Credential, ...]:
    return read_sources(sources_of([f"{named(route)}={path}"], []), NOW)


def private(path: Path, raw: bytes) -> Path:
    path.write_bytes(raw)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("route", [route for route in Route if not route.rotates])
def test_each_route_from_a_file_of_ones_own(route: Route, tmp_path: Path) -> None:
    found = given(private(tmp_path / "file", file_of(route)), route)
    assert [one.name for one in found] == [named(route)]


@contextmanager
def pipe_of(raw: bytes) -> Iterator[int]:
    """A descriptor that says this and ends."""
    ours, theirs = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"],
        stdin=subprocess.PIPE,
        stdout=theirs,
    ) as child:
        os.close(theirs)
        assert child.stdin is not None
        child.stdin.write(raw)
        child.stdin.close()
        yield ours
        os.close(ours)


def test_a_descriptor_is_read_to_its_end() -> None:
    with pipe_of(file_of(Route.PI_OAUTH)) as number:
        found = read_sources(sources_of([], [f"pi.oauth={number}"]), NOW)
    assert [str(one.name) for one in found] == ["pi.oauth"]


def test_a_descriptor_is_bounded() -> None:
    with pipe_of(b" " * (MAX_CREDENTIAL_BYTES + 2)) as number, pytest.raises(UsageError, match="more than"):
        read_sources(sources_of([], [f"pi.oauth={number}"]), NOW)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "missing": lambda _: None,
    "a directory": lambda path: path.mkdir(mode=0o700),
    "a pipe": lambda path: os.mkfifo(path, 0o600),
    "a link": lambda path: path.symlink_to(private(path.with_name("real"), file_of(KEY))),
    "a link to nothing": lambda path: path.symlink_to(path.with_name("nothing")),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "empty": lambda path: private(path, b""),
    "a megabyte": lambda path: private(path, b"k" * (1 << 20)),
    "a gigabyte of nothing": lambda path: os.truncate(private(path, b""), 1 << 30),
    "readable for the group": lambda path: private(path, file_of(KEY)).chmod(0o640),
    "readable for all": lambda path: private(path, file_of(KEY)).chmod(0o604),
    "writable for the group": lambda path: private(path, file_of(KEY)).chmod(0o620),
    "a zero byte": lambda path: private(path, file_of(KEY) + b"\0"),
    "two lines": lambda path: private(path, file_of(KEY) * 2),
    "not UTF-8": lambda path: private(path, b"\xff" + file_of(KEY)),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_source_that_is_not_ones_own_private_file_is_refused(what: str, tmp_path: Path) -> None:
    path = tmp_path / ("dummy-value-typed-" + "for-a-file")
    HOSTILE[what](path)
    with pytest.raises(UsageError) as caught:
        given(path)
    told = f"{caught.value} {caught.value.hint}"
    assert str(named(KEY)) in told
    assert dummy("key") not in told
    assert path.name not in told  # what stands there may be the value itself
    assert caught.value.code is ExitCode.USAGE


def test_a_file_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = private(tmp_path / "file", file_of(KEY))
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(UsageError, match="belongs to another user"):
        given(path)


@pytest.mark.parametrize(
    "words",
    ["claude-code.api-key", "claude-code.api-key=", "=file", "claude-code.api-key\0=x", "a.b=c", "x" * 5000],
)
def test_words_that_name_no_source_are_refused(words: str) -> None:
    with pytest.raises(UsageError):
        sources_of([words], [])


@pytest.mark.parametrize("number", ["", "x", "-1", "1.5", "0x3", "٣", "9999999"])
def test_what_is_no_descriptor_is_refused(number: str) -> None:
    with pytest.raises(UsageError):
        sources_of([], [f"claude-code.api-key={number}"])


def test_a_descriptor_that_is_not_open_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_sources(sources_of([], ["claude-code.api-key=98765"]), NOW)


def test_one_name_has_one_source(tmp_path: Path) -> None:
    path = private(tmp_path / "file", file_of(KEY))
    sources = sources_of([f"{named(KEY)}={path}"] * 2, [])
    with pytest.raises(UsageError, match="given twice"):
        read_sources(sources, NOW)


def test_a_token_for_git_hosting_is_refused(tmp_path: Path) -> None:
    path = private(tmp_path / "file", b"gh" + b"p_" + b"a1" * 18 + b"\n")
    with pytest.raises(LaunchRefused) as caught:
        given(path)
    assert caught.value.reason == "credential-for-hosting"


VALUE = "zq7" * 9


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--credential", f"claude-code.api-key={VALUE}"], ExitCode.RUN_FAILED),
        (["--credential", f"ANTHROPIC_API_KEY={VALUE}"], ExitCode.RUN_FAILED),
        (["--credential", VALUE], ExitCode.RUN_FAILED),
        (["--credential-fd", f"claude-code.api-key={VALUE}"], ExitCode.RUN_FAILED),
        (["--dry-run", "--credential", f"claude-code.api-key={VALUE}"], ExitCode.USAGE),
        (["--dry-run", "--json", "--credential", VALUE], ExitCode.USAGE),
    ],
)
def test_a_value_typed_in_place_of_a_file_is_refused_and_not_repeated(
    words: list[str],
    code: ExitCode,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main_inner(["run", *words], {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}) == code
    said = capsys.readouterr()
    assert VALUE not in said.out + said.err
    assert "error" in said.err + said.out


def test_the_parser_repeats_no_credential(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = dummy("key") + "x" * 40
    for more in ([], ["--json"]):
        code = main_inner(["run", f"--api-key={key}", *more], {"HOME": str(tmp_path)})
        assert code == ExitCode.RUN_FAILED
        said = capsys.readouterr()
        assert key not in said.err + said.out


SETTINGS = """\
schema = 1
[credentials]
"claude-code.api-key" = "/keys/claude"
"pi.api-key.openai" = "/keys/openai"
"pi.oauth" = "/keys/pi.json"
"""


@pytest.mark.parametrize(
    ("agent", "typed", "kept"),
    [
        ("claude-code", [], ["claude-code.api-key"]),
        ("pi", [], ["pi.api-key.openai", "pi.oauth"]),
        ("pi", [Route.CLAUDE_API_KEY], ["pi.api-key.openai", "pi.oauth"]),
        ("pi", [Route.PI_API_KEY], []),
        ("opencode", [], []),
        ("", [], []),  # a plain command
        ("", [Route.PI_API_KEY], []),
    ],
)
def test_settings_name_what_an_agent_gets(agent: str, typed: list[Route], kept: list[str]) -> None:
    settings = parse_settings(SETTINGS, where="settings.toml")
    found = kept_sources(settings.credentials, agent, [credential(route) for route in typed])
    assert [str(one.name) for one in found] == kept
    assert {one.place for one in found} <= {path for _, path in settings.credentials}


@pytest.mark.parametrize(
    "line",
    [
        '"claude-code" = "/keys/claude"',
        '"claude-code.api-key" = "keys/claude"',
        '"claude-code.api-key" = 7',
        'claude-code.api-key = "/keys/claude"',
        '"pi.api-key" = "/keys/pi"',
    ],
)
def test_settings_that_name_no_credential_are_refused(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_settings(f"schema = 1\n[credentials]\n{line}\n", where="settings.toml")
    assert "credentials" in str(caught.value)


def test_a_value_in_the_settings_is_found_before_it_is_read() -> None:
    with pytest.raises(BuilderError) as caught:
        parse_settings(f'schema = 1\n[credentials]\n"claude-code.api-key" = "{VALUE}"\n', where="s")
    assert VALUE not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("agent", "command", "names"),
    [("pi", (), ["pi.api-key.openai"]), ("claude-code", (), []), ("", ("true",), [])],
)
def test_a_launch_gets_what_the_settings_keep_for_its_agent(
    agent: str, command: tuple[str, ...], names: list[str], tmp_path: Path
) -> None:
    path = private(tmp_path / "openai", dummy("other").encode())
    settings = parse_settings(f'schema = 1\ncredentials = {{ "pi.api-key.openai" = "{path}" }}\n', where="s")
    chosen: Any = SimpleNamespace(project=None)
    asked = RunRequest(command=command, agent=agent, arguments=(), deadline=None)
    made = launch_request(chosen, asked, settings, policy_for(tmp_path / "config"), NOW)
    assert [str(one.name) for one in made.projection.credentials] == names


# the servers that the policy turns on


TOKEN = "dummy-value-" + "0123456789"


def places(tmp_path: Path, content: bytes = TOKEN.encode() + b"\n") -> tuple[SecretPlace, ...]:
    return (
        SecretPlace("files", "FILES_TOKEN", private(tmp_path / "token", content)),
        SecretPlace("files", "OTHER", None),
    )


def test_a_servers_secrets_come_from_their_file_and_descriptor(tmp_path: Path) -> None:
    with pipe_of(b"another-value-1\n") as descriptor:
        given = server_secret_descriptors([f"files.OTHER={descriptor}"])
        found = read_server_secrets(places(tmp_path), given)
    assert [(one.name, one.content.reveal().decode()) for one in found] == [
        ("files.FILES_TOKEN", TOKEN),
        ("files.OTHER", "another-value-1"),
    ]
    assert TOKEN not in repr(found)


def test_each_secret_has_the_one_source_that_the_policy_names(tmp_path: Path) -> None:
    wanted = places(tmp_path)
    for given, why in (
        ({}, "given at each launch"),
        ({"files.OTHER": 0, "files.FILES_TOKEN": 0}, "the policy has its file"),
        ({"look.OTHER": 0}, "given at each launch"),
    ):
        with pytest.raises(UsageError, match=why):
            read_server_secrets(wanted, given)
    with pytest.raises(UsageError, match="not one that the policy names"):
        read_server_secrets((), {"files.OTHER": 0})


@pytest.mark.parametrize("what", ["mode", "link", "missing", "pipe", "long"])
def test_a_servers_secret_is_read_as_strictly_as_a_credential(what: str, tmp_path: Path) -> None:
    path = private(tmp_path / "token", TOKEN.encode())
    if what == "mode":
        path.chmod(0o640)
    elif what == "link":
        path.rename(tmp_path / "real")
        path.symlink_to(tmp_path / "real")
    elif what == "long":
        path.write_bytes(b"x" * (MAX_CREDENTIAL_BYTES + 1))
    else:
        path.unlink()
        if what == "pipe":
            os.mkfifo(path, 0o600)
    with pytest.raises(UsageError) as caught:
        read_server_secrets((SecretPlace("files", "FILES_TOKEN", path),), {})
    assert caught.value.where == "secret files.FILES_TOKEN"
    assert TOKEN not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    "words",
    [
        [TOKEN],
        [f"files.OTHER={TOKEN}"],
        [f"{TOKEN}=3"],
        ["dummy.value0123456789=x"],
        ["files.OTHER"],
        ["files=3"],
        ["files.OTHER=-1"],
        ["files.OTHER=3", "files.OTHER=4"],
    ],
)
def test_a_value_typed_in_the_place_of_a_descriptor_is_not_repeated(words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        server_secret_descriptors(words)
    assert not re.search("dummy", f"{caught.value} {caught.value.hint} {caught.value.where}")


@pytest.mark.parametrize(
    ("agent", "launch_class", "names"),
    [
        ("", LaunchClass.EXECUTE, ["files.FILES_TOKEN"]),
        ("opencode", LaunchClass.EXECUTE, ["files.FILES_TOKEN"]),
        ("pi", LaunchClass.EXECUTE, []),
        ("", LaunchClass.EXPORT_COMMAND, []),
    ],
)
def test_a_launch_reads_the_secrets_of_servers_that_it_can_start(
    agent: str, launch_class: LaunchClass, names: list[str], tmp_path: Path
) -> None:
    token = private(tmp_path / "token", TOKEN.encode())
    more = f"""
[enable]
mcp = ["files"]
secrets = {{ files = {{ FILES_TOKEN = "file:{token}" }} }}
"""
    policy = policy_for(tmp_path / "config", more=more)
    asked = RunRequest(
        command=() if agent else ("true",),
        agent=agent,
        arguments=(),
        deadline=None,
        launch_class=launch_class,
    )
    chosen: Any = SimpleNamespace(project=None)
    made = launch_request(chosen, asked, parse_settings("schema = 1\n", where="s"), policy, NOW)
    assert [one.name for one in made.projection.server_secrets] == names
