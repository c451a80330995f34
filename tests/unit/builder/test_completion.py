"""Completion as a shell does it, and help that teaches: no command without sentence, example and page."""

from __future__ import annotations

import argparse
import json
import os
import pty
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from builder.cli import main_inner
from builder.cli.arguments import make_parser, parse_arguments
from builder.cli.documents.shell import Shell
from builder.cli.options.parser import BadUsage
from builder.cli.teaching import LESSONS
from builder.cli.verbs import ACTS, VERBS
from builder.cli.verbs.completion_verb import completion_script
from tests.results import check

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = sorted({*VERBS, *(f"{verb} {act}" for verb, acts in ACTS.items() for act in acts)})
OF_THE_DAY = ["init", "lock", "build", "verify", "run", "show", "doctor"]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "builder.bash"
    path.write_text(completion_script(Shell.BASH))
    return path


def offered(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    asked = (
        f"source {shlex.quote(str(script))}; COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1};"
        " _shtab_builder 2>/dev/null; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", asked], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_bash_offers_the_commands_of_the_day_first(script: Path) -> None:
    found = offered(script, "builder", "")
    assert found[: len(OF_THE_DAY)] == OF_THE_DAY
    assert set(found) == set(VERBS)
    assert "complete -o nosort -o bashdefault -F _shtab_builder builder" in script.read_text()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("ver",), ["verify"]),
        (("verify", "--att"), ["--attest"]),
        (("show", "--as", ""), ["docker", "compose", "devcontainer", "kubernetes"]),
        (("store", ""), ["add", "export", "import"]),
        (("store", "export", "--lo"), ["--lock"]),
        (("lock", "--progress", ""), ["auto", "plain", "json"]),
        (("completion", ""), ["bash", "zsh"]),
    ],
)
def test_bash_completes(script: Path, words: tuple[str, ...], found: list[str]) -> None:
    assert offered(script, "builder", *words) == found


def test_bash_completes_files_where_a_file_is_meant(script: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").touch()
    (tmp_path / "places").mkdir()
    assert offered(script, "builder", "verify", "--policy", f"{tmp_path}/po") == [f"{tmp_path}/policy.toml"]
    assert offered(script, "builder", "verify", "--state", f"{tmp_path}/p") == [f"{tmp_path}/places"]


def test_a_person_presses_tab(script: Path, tmp_path: Path) -> None:
    """An interactive bash on a terminal: what TAB makes of two halves is what the command gets."""
    got = tmp_path / "got"
    typed = f"source {script}\nbuilder() {{ printf '%s\\n' \"$@\" >{got}; exit; }}\nbuilder verif\t--att\t\n"
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(  # noqa: S606  (an interactive shell is what is tested)
            "bash", ["bash", "--norc", "--noprofile", "-i"], {"PATH": os.environ["PATH"], "TERM": "dumb"}
        )
    os.write(terminal, typed.encode())
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:  # the terminal's other end was closed: bash has ended
        pass
    os.close(terminal)
    os.waitpid(child, 0)
    assert got.read_text().split() == ["verify", "--attest"]


def test_zsh_gets_a_script_of_its_own() -> None:
    text = completion_script(Shell.ZSH)
    assert text.startswith("#compdef builder")
    assert all(f"\n    {verb}:'" in text for verb in VERBS)
    if (zsh := shutil.which("zsh")) is not None:
        subprocess.run([zsh, "-n"], input=text, text=True, check=True)


def test_the_verb_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    assert main_inner(["completion", "bash"], environment) == 0
    assert capsys.readouterr().out == completion_script(Shell.BASH)
    assert main_inner(["completion", "bash", "--json"], environment) == 0
    document = check(json.loads(capsys.readouterr().out))
    assert document["script"] == completion_script(Shell.BASH)
    assert not (tmp_path / ".local").exists()  # no state is made for it


@pytest.mark.parametrize("command", COMMANDS)
def test_no_help_without_a_sentence_an_example_and_a_page(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lesson = LESSONS[command]
    with pytest.raises(SystemExit):
        make_parser().parse_args([*command.split(), "--help"])
    said = capsys.readouterr().out
    usage, sentence = said.split("\n\n")[:2]
    assert usage.startswith(f"usage: builder {command}")
    assert sentence.endswith(".")
    assert said.endswith(f"\n\n{lesson.epilog}\n")
    assert (ROOT / lesson.page).is_file()
    assert lesson.examples
    for line, what in lesson.examples:
        assert what
        assert f"  {line}\n" in said
        words = shlex.split(line.partition(" >")[0])
        assert words[: 1 + len(command.split())] in (
            ["builder", *command.split()],
            ["builder", "store", "export"],
        )
        assert parse_arguments(words[1:]).command == words[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_does(command: str) -> None:
    parser = make_parser()
    for word in command.split():
        (verbs,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
        parser = verbs.choices[word]
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            assert action.help, action.option_strings or action.dest


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("biuld", "no such command: 'biuld'; did you mean build?"),
        ("sesions", "no such command: 'sesions'; did you mean sessions?"),
        ("xyzzy", "no such command: 'xyzzy'"),
        ("--state x build", "no such command: 'x'"),
        ("run --agnet pi", "unrecognized arguments: --agnet; did you mean --agent?"),
        ("gc --sesions=30d", "unrecognized arguments: --sesions=30d; did you mean --sessions?"),
        ("store export a.tar --lokc b", "unrecognized arguments: --lokc b; did you mean --lock?"),
        ("ps --xyzzy", "unrecognized arguments: --xyzzy"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(typed: str, said: str) -> None:
    with pytest.raises(BadUsage) as caught:
        parse_arguments(typed.split())
    assert caught.value.message == said


def test_the_first_help_has_commands_that_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        make_parser().parse_args(["--help"])
    said = capsys.readouterr().out
    typed = [one for line in said.splitlines() if line.startswith("  builder ") for one in line.split("&&")]
    assert [shlex.split(one)[1] for one in typed] == ["bootstrap", "init", "lock", "build", "verify", "run"]
    for one in typed:
        parse_arguments(shlex.split(one)[1:])
    assert "docs/tutorial/first-agent.md" in said


def test_no_lesson_without_a_command() -> None:
    assert sorted(LESSONS) == COMMANDS
