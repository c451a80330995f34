"""The scripts under tools/ that set up and go on, with stand-ins for the programs that change things."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backend.runner import Command, Outcome, run

TOOLS = Path(__file__).resolve().parents[3] / "tools"
STAMPED = "pwd; sha256sum tools/requirements.lock pyproject.toml"
CHANGERS = ("apt-get", "sudo", "setsid", "systemctl", "install", "mknod", "chmod", "useradd", "runuser")


@dataclass
class Bare:
    """A copy of the scripts in a checkout without environment, and a PATH where programs are stand-ins."""

    root: Path
    programs: dict[str, str] = field(default_factory=dict)

    def call(self, script: str, *arguments: str) -> Outcome:
        folder = self.root / "programs"
        folder.mkdir(exist_ok=True)
        for name, body in self.programs.items():
            (folder / name).write_text(f"#!/bin/sh\n{body}\n")
            (folder / name).chmod(0o755)
        return run(
            Command(
                argv=("bash", str(self.root / "tools" / script), *arguments),
                environment={"PATH": f"{folder}:/usr/bin:/bin"},
                deadline=60.0,
            )
        )

    @property
    def changed(self) -> list[str]:
        """What the stand-ins of changing programs were called with."""
        log = self.root / "changes"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    (tmp_path / "tools").mkdir()
    for name in (
        "setup-machine",
        "rootless-engines",
        "bootstrap-or-refresh",
        "lock-or-upgrade",
        "requirements.lock",
    ):
        shutil.copy(TOOLS / name, tmp_path / "tools" / name)
    shutil.copy(TOOLS.parent / "pyproject.toml", tmp_path / "pyproject.toml")
    note = f'echo "$(basename "$0") $*" >>{tmp_path}/changes'
    programs = dict.fromkeys(CHANGERS, note)
    programs |= {"dpkg-query": "exit 1", "docker": "exit 1", "id": "echo 0"}
    return Bare(tmp_path, programs)


def test_a_bare_machine_is_asked_before_anything_changes(bare: Bare) -> None:
    outcome = bare.call("setup-machine")
    said = outcome.stderr.decode()
    assert outcome.exit_code == 3
    assert "install Debian packages: " in said
    assert " mmdebstrap " in said
    assert "make the Python environment" in said
    assert "start the Docker daemon" in said
    assert "hint: tools/setup-machine --yes" in said
    assert bare.changed == []
    assert not (bare.root / ".venv").exists()


def test_an_ordinary_users_needs_are_listed_too(bare: Bare) -> None:
    bare.programs["id"] = '[ "$2" = somebody ] && echo 4321 || echo 0'
    said = bare.call("setup-machine", "--user", "somebody").stderr.decode()
    assert "give somebody the subordinate ids" in said
    assert "/run/user/4321" in said


def test_without_an_engine_asked_no_daemon_is_planned(bare: Bare) -> None:
    assert "Docker daemon" not in bare.call("setup-machine", "--no-engine").stderr.decode()


def test_a_ready_machine_is_left_alone(bare: Bare) -> None:
    bare.programs |= {"dpkg-query": "echo 'ii '", "docker": "exit 0"}
    (bare.root / ".venv/bin").mkdir(parents=True)
    (bare.root / ".venv/bin/builder").write_text("")
    (bare.root / ".venv/bin/builder").chmod(0o755)
    said = bare.call("setup-machine").stderr.decode()
    assert "Debian packages" not in said
    assert "make the Python environment" in said
    stamp = run(
        Command(
            argv=("sh", "-c", f"({STAMPED}) | sha256sum | cut -d' ' -f1"),
            environment={"PATH": "/usr/bin:/bin"},
            deadline=10.0,
            working_dir=bare.root,
        )
    )
    (bare.root / ".venv/.made-from").write_bytes(stamp.stdout)
    outcome = bare.call("setup-machine")
    assert outcome.ok, outcome.stderr
    assert b"nothing to change" in outcome.stderr
    assert bare.changed == []


def test_an_environment_that_was_copied_is_made_anew(bare: Bare) -> None:
    """It points to the checkout that it was made for: another one, or none."""
    bare.programs |= {"dpkg-query": "echo 'ii '", "docker": "exit 0"}
    (bare.root / ".venv/bin").mkdir(parents=True)
    (bare.root / ".venv/bin/builder").write_text("")
    (bare.root / ".venv/bin/builder").chmod(0o755)
    shell = f"cd {bare.root} && ({STAMPED.replace('pwd', 'echo /elsewhere')}) | sha256sum | cut -d' ' -f1"
    stamp = run(Command(argv=("sh", "-c", shell), environment={"PATH": "/usr/bin:/bin"}, deadline=10.0))
    (bare.root / ".venv/.made-from").write_bytes(stamp.stdout)
    assert b"make the Python environment" in bare.call("setup-machine").stderr
    assert b"Python environment" not in bare.call("setup-machine", "--no-environment").stderr


def test_who_is_not_root_and_has_no_sudo_is_told_what_root_must_do(bare: Bare) -> None:
    bare.programs |= {"id": "case $1 in -un) echo somebody ;; *) echo 4321 ;; esac"}
    bare.programs.pop("sudo")
    outcome = bare.call("setup-machine", "--yes")
    assert outcome.exit_code == 3
    assert b"install Debian packages" in outcome.stderr
    assert b"hint: run it as root once, with --user somebody" in outcome.stderr
    assert bare.changed == []


@pytest.mark.parametrize(
    ("taken", "range_"),
    [
        ("", "100000:65536"),
        ("a:100000:65536\nb:500:10\n", "165536:65536"),
        ("a:100000:65536\nb:231072:65536\n", "296608:65536"),
    ],
)
def test_subordinate_ids_are_beyond_all_that_somebody_has(bare: Bare, taken: str, range_: str) -> None:
    """Two users with the same ids would own each other's containers."""
    script = bare.root / "tools/setup-machine"
    for name in ("subuid", "subgid"):
        (bare.root / name).write_text(taken if name == "subuid" else "")
        script.write_text(script.read_text().replace(f"/etc/{name}", str(bare.root / name)))
    bare.programs["id"] = '[ "$2" = somebody ] && echo 4321 || echo 0'
    said = bare.call("setup-machine", "--user", "somebody").stderr.decode()
    assert f"give somebody the subordinate ids {range_} in " in said


# Root, on a machine with no other user.
ALONE = 'case "$*" in -u) echo 0 ;; -un) echo root ;; *) exit 1 ;; esac'


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("up",), 3, "a rootless engine is not root's"),
        (("up", "--user", "root"), 3, "a rootless engine is not root's"),
        (("up", "--user", "somebody"), 3, "there is no user somebody"),
        (("up", "--create", "--user", "somebody"), 3, "nobody is there to ask"),
        (("run", "--user", "somebody"), 2, "tools/rootless-engines run"),
        (("up", "--force", "--user", "somebody"), 2, "tools/rootless-engines up"),
        ((), 2, "tools/rootless-engines down"),
    ],
)
def test_no_user_is_made_or_acted_for_unasked(
    bare: Bare, words: tuple[str, ...], code: int, said: str
) -> None:
    bare.programs["id"] = ALONE
    outcome = bare.call("rootless-engines", *words)
    assert outcome.exit_code == code
    assert said in outcome.stderr.decode()
    assert bare.changed == []


def test_an_ordinary_user_acts_for_himself_alone(bare: Bare) -> None:
    bare.programs["id"] = 'case "$*" in -u) echo 4321 ;; -un) echo me ;; esac'
    outcome = bare.call("rootless-engines", "up", "--yes", "--user", "somebody")
    assert outcome.exit_code == 3
    assert b"only root acts for another user" in outcome.stderr
    assert bare.changed == []


def test_an_unknown_option_is_usage(bare: Bare) -> None:
    outcome = bare.call("setup-machine", "--force")
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith(b"usage: ")


# -- bootstrap-or-refresh ------------------------------------------------------------------------


def builder_that(bare: Bare, first: int) -> None:
    """A builder whose plain bootstrap ends with ``first`` and whose refresh succeeds."""
    (bare.root / ".venv/bin").mkdir(parents=True)
    program = bare.root / ".venv/bin/builder"
    program.write_text(f'#!/bin/sh\necho "$*"\n[ "$2" = --refresh ] || exit {first}\n')
    program.chmod(0o755)


@pytest.mark.parametrize("code", [0, 3, 5, 10])
def test_pins_that_did_not_vanish_are_not_resolved_again(bare: Bare, code: int) -> None:
    builder_that(bare, code)
    outcome = bare.call("bootstrap-or-refresh", "--engine", "docker")
    assert outcome.exit_code == code
    assert outcome.stdout == b"bootstrap --engine docker\n"


def test_vanished_pins_are_resolved_into_a_copy_and_said(bare: Bare) -> None:
    builder_that(bare, 4)
    outcome = bare.call("bootstrap-or-refresh", "--engine", "docker")
    assert outcome.exit_code == 0
    assert outcome.stdout == b"bootstrap --engine docker\nbootstrap --refresh --engine docker\n"
    assert b"have vanished upstream" in outcome.stderr


# -- lock-or-upgrade -----------------------------------------------------------------------------

LOCKED = b"sha256:" + b"a" * 64 + b"\n"


def lock_that(bare: Bare, *gone: str, hopeless: str = "", answer: str = "") -> None:
    """A builder whose lock names the first of ``gone`` that no --upgrade moves; ``hopeless`` never moves."""
    (bare.root / ".venv/bin").mkdir(parents=True)
    checks = [f'case " $* " in *" --upgrade={name} "*) ;; *) vanished {name} ;; esac' for name in gone]
    error = '{"command": "lock", "error": {"code": 4, "hint": "x", "pin": "%s", "reason": "not-found"}}'
    lines = (
        "#!/bin/sh",
        f'echo "$*" >>{bare.root}/calls',
        f"vanished() {{ printf '{error}\\n' \"$1\"; exit 4; }}",
        answer,
        *checks,
        f"vanished {hopeless}" if hopeless else "",
        f"""echo '{{"artifacts": 3, "command": "lock", "lock": "sha256:{"a" * 64}", "ok": true}}'""",
    )
    program = bare.root / ".venv/bin/builder"
    program.write_text("\n".join(lines) + "\n")
    program.chmod(0o755)


def calls(bare: Bare) -> list[str]:
    return (bare.root / "calls").read_text().splitlines()


def test_a_lock_that_works_is_made_once(bare: Bare) -> None:
    lock_that(bare)
    outcome = bare.call("lock-or-upgrade", "--engine", "docker")
    assert (outcome.exit_code, outcome.stdout) == (0, LOCKED)
    assert calls(bare) == ["lock --json --engine docker"]


def test_vanished_pins_are_moved_one_after_the_other_and_said(bare: Bare) -> None:
    lock_that(bare, "base", "claude-code")
    outcome = bare.call("lock-or-upgrade", "--engine", "docker")
    assert (outcome.exit_code, outcome.stdout) == (0, LOCKED)
    assert calls(bare) == [
        "lock --json --engine docker",
        "lock --json --upgrade=base --engine docker",
        "lock --json --upgrade=base --upgrade=claude-code --engine docker",
    ]
    said = outcome.stderr.decode()
    assert "the pin of base in " in said
    assert "the pin of claude-code in " in said
    assert said.count("has vanished upstream") == 2


def test_a_pin_with_nowhere_to_go_ends_it(bare: Bare) -> None:
    lock_that(bare, hopeless="pi")
    assert bare.call("lock-or-upgrade").exit_code == 4
    assert calls(bare) == ["lock --json", "lock --json --upgrade=pi"]


@pytest.mark.parametrize("code", [1, 2, 3, 9, 10, 143])
def test_any_other_failure_keeps_its_code(bare: Bare, code: int) -> None:
    lock_that(bare, answer=f"exit {code}")
    assert bare.call("lock-or-upgrade").exit_code == code
    assert len(calls(bare)) == 1


@pytest.mark.parametrize(
    "error",
    [
        {"pin": "pi", "reason": "integrity", "what": "other bytes"},
        {"reason": "not-found", "what": "chalk"},
        {"pin": "pi", "reason": "integrity", "what": '"reason": "not-found"'},
        {"reason": "not-found", "what": '"pin": "pi"'},
        {"pin": "pi; rm -rf /", "reason": "not-found", "what": "odd"},
    ],
)
def test_bytes_that_differ_are_never_moved_away_from(bare: Bare, error: dict[str, str]) -> None:
    (bare.root / "answer").write_text(json.dumps({"command": "lock", "error": {"code": 4, **error}}))
    lock_that(bare, answer=f"cat {bare.root}/answer; exit 4")
    assert bare.call("lock-or-upgrade").exit_code == 4
    assert len(calls(bare)) == 1
