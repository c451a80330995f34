"""Type the tutorial on a bare machine, as a newcomer would, and say how long each command took.

    python -m benchmarks.newcomer --engine docker|docker-rootless|podman [--programs STATE] [--log FILE]

As root, on a machine with mmdebstrap and slirp4netns. Every console block of docs/tutorial/first-agent.md on
this engine is typed in a fresh Debian tree, from the clone of what is committed here to the agent's commit in
the newcomer's own repository; nothing else is done for him. The model's provider is scripted, under
its real name: its address and authority are what this machine's administrator is taken to have given him.
What the page shows of a command's output must be in it. Then the agent runs a second time. With --programs
the compiled tools are taken from a state of ours, since compiling them is minutes of every processor: the
result says so, and then it is no whole first run.

Prints one JSON object: seconds of each command, and its longest silence (seconds) with the line before it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from benchmarks.bare_machine import BareMachine, add_authority, bare_machine
from tests.docs.documents import ROOT, Step, examples

DOCUMENT: Final = "docs/tutorial/first-agent.md"
USER: Final = "me"  # whom the page makes
WHERE: Final = {
    "docker": {"root", "rootful", "docker"},
    "docker-rootless": {"root", "rootless", "docker-rootless"},
    "podman": {"root", "rootless", "podman"},
}
ADDRESS: Final = "/srv/agent-image-builder.git"
MODEL: Final = "11.22.33.44 api.anthropic.com\n"  # as tests.real.scripted_model serves it
AGENT: Final = "builder run --agent"
END: Final = "@@ended "
LIMIT: Final = 3600.0


@dataclass(frozen=True)
class Typed:
    """One command and how it went. ``silence``: its longest, in seconds, after it had said ``before``."""

    user: str
    command: str
    seconds: float
    silence: float
    before: str


class Session:
    """One shell of one user, kept open: what it exports and where it is stays for the next command."""

    def __init__(self, machine: BareMachine, user: str, log: IO[str]) -> None:
        self._user, self._log, self._machine = user, log, machine
        self._shell = subprocess.Popen(
            machine.enter("bash", "--login", user=user),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def type(self, step: Step) -> Typed:
        """Until it has ended. A command that fails, or does not say what the page shows, ends the trial."""
        command = step.command.replace("ADDRESS", ADDRESS)
        script = self._machine.tree / "tmp/typed"
        script.write_text(f"{command}\n")
        script.chmod(0o644)
        assert self._shell.stdin is not None
        self._log.write(f"\n[{self._user}] $ {command}\n")
        began = time.monotonic()
        self._shell.stdin.write(f". /tmp/typed </dev/null; code=$?; echo; echo {END}$code\n".encode())
        self._shell.stdin.flush()
        said, silence, before = self._listen(began)
        seconds = time.monotonic() - began
        words, _, code = said.rpartition(END)
        if code.strip() != "0":
            sys.exit(f"{command}\nended with {code}{words[-3000:]}")
        missing = step.missing(words)
        if missing is not None:
            sys.exit(f"{command}\nthe page shows {missing!r}, which was not said:\n{words[-3000:]}")
        print(f"{seconds:7.1f} s  {command}", file=sys.stderr)
        return Typed(self._user, step.command, round(seconds, 1), round(silence, 1), before)

    def _listen(self, began: float) -> tuple[str, float, str]:
        assert self._shell.stdout is not None
        said, silence, before, last = "", 0.0, "", began
        with selectors.DefaultSelector() as ready:
            ready.register(self._shell.stdout, selectors.EVENT_READ)
            while not re.search(f"^{END}[0-9]+\n", said[-100:], re.MULTILINE):
                if time.monotonic() - began > LIMIT:
                    sys.exit(f"no end after {LIMIT:.0f} s:\n{said[-3000:]}")
                if not ready.select(10.0):
                    continue
                chunk = os.read(self._shell.stdout.fileno(), 65536).decode(errors="replace")
                if not chunk:
                    sys.exit(f"the shell of {self._user} ended:\n{said[-3000:]}")
                now = time.monotonic()
                if now - last > silence:
                    silence, before = now - last, said.rstrip().rpartition("\n")[2][-100:]
                last = now
                said += chunk
                self._log.write(chunk)
                self._log.flush()
        return said, silence, before

    def end(self) -> None:
        """Log out."""
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()


def steps_for(engine: str) -> Iterator[tuple[bool, Step]]:
    """What the page has somebody with this engine type, and whether as root."""
    for example in examples():
        if example.document == DOCUMENT and example.language == "console" and example.where <= WHERE[engine]:
            for step in example.steps:
                yield "root" in example.where, step


def give_programs(machine: BareMachine, state: Path, user: str) -> None:
    """What bootstrap would compile, where it would keep it; used only if the locked pins are the same."""
    kept = ".local/state/agent-image-builder/bootstrap"
    machine.call("sh", "-euc", f"umask 077; mkdir -p {kept}", user=user)
    home = Path("root") if user == "root" else Path("home") / user
    shutil.copytree(state / "bootstrap/go", machine.tree / home / kept / "go")
    machine.call("chown", "-R", f"{user}:{user}", f"/{home}/{kept}/go")


@contextlib.contextmanager
def scripted_model(machine: BareMachine, folder: Path) -> Iterator[None]:
    """The provider, in the machine's network, where its name leads to."""
    argv = [*("nsenter", f"--net=/proc/{machine.init}/ns/net", "--", sys.executable)]
    serving = subprocess.Popen(
        [*argv, "-m", "tests.real.scripted_model", str(folder)], cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        assert serving.stdout is not None
        if serving.stdout.readline() != b"ready\n":
            sys.exit("the scripted provider did not start")
        with (machine.tree / "etc/hosts").open("a") as hosts:
            hosts.write(MODEL)
        add_authority(machine, folder / "ca.pem", "scripted-model")
        yield
    finally:
        serving.terminate()
        serving.wait()


def trial(engine: str, folder: Path, log: IO[str], programs: Path | None) -> dict[str, object]:
    """All of it. The tree is gone afterwards."""
    typed: list[Typed] = []
    with bare_machine(folder) as machine, scripted_model(machine, folder):
        subprocess.run(["git", "clone", "--quiet", "--bare", ROOT, f"{machine.tree}{ADDRESS}"], check=True)
        sessions: dict[str, Session] = {}
        agent: Step | None = None
        for as_root, step in steps_for(engine):
            user = "root" if as_root or engine == "docker" else USER
            if user not in sessions:
                sessions[user] = Session(machine, user, log)
            if programs and step.command == "builder bootstrap":
                give_programs(machine, programs, user)
            typed.append(sessions[user].type(step))
            agent = step if step.command.startswith(AGENT) else agent
        assert agent is not None
        again = sessions[user].type(agent)
        for session in sessions.values():
            session.end()
        if engine != "docker":
            # The daemon ends in order: nothing of its containers stays in this machine's cgroups.
            machine.call("/opt/agent-image-builder/tools/rootless-engines", "down", "--user", USER)
    return {
        "engine": engine,
        "compiled_here": programs is None,
        "first_run": round(sum(one.seconds for one in typed), 1),
        "of_it_the_machine": round(sum(one.seconds for one in typed if one.user == "root"), 1),
        "second_run": again.seconds,
        "typed": [asdict(one) for one in typed],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", choices=WHERE, required=True)
    parser.add_argument("--programs", type=Path, help="a state whose compiled tools are used")
    parser.add_argument("--folder", type=Path, default=ROOT / ".state", help="where the tree is made: 10 GB")
    parser.add_argument("--log", type=argparse.FileType("w"), default=sys.stderr, help="all that was said")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the machine ends, and its tree goes
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bare-") as name:
        print(json.dumps(trial(options.engine, Path(name), options.log, options.programs), indent=2))


if __name__ == "__main__":
    main()
