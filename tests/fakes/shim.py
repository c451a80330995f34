"""A program in the place of ``docker`` or ``podman``: it records its argv and answers from a table."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """#!/bin/sh
printf '%s\\n' "$@" >>{record}
echo '== end of call ==' >>{record}
env >{record}.environment
for argument in "$@"; do
    case "$argument" in -*) continue ;; esac
    verb="${{verb:+$verb-}}$argument"; count=$((count+1))
    [ "$count" = 2 ] && break
done
case "$1" in info|version|--*) [ -f {answers}/"$verb" ] || verb=${{verb%%-*}} ;; esac
[ -f {answers}/"$verb" ] || {{ echo "no answer for $verb" >&2; exit 97; }}
[ -f {answers}/"$verb.stderr" ] && cat {answers}/"$verb.stderr" >&2
[ -f {answers}/"$verb.reads" ] && cat >{record}.stdin
cat {answers}/"$verb"
code=$(cat {answers}/"$verb.code")
[ -d {answers}/"$verb.after" ] && cp {answers}/"$verb.after"/* {answers}/
exit "$code"
"""


@dataclass(frozen=True)
class Shim:
    """``program`` in ``folder`` (put it on a PATH). ``answer("container-create", …)`` fills the table."""

    folder: Path
    program: str

    @property
    def path(self) -> Path:
        return self.folder / self.program

    @property
    def record(self) -> Path:
        return self.folder / f"{self.program}.record"

    def install(self) -> Shim:
        """Write the program; its answers lie beside it."""
        answers = self.folder / f"{self.program}.answers"
        answers.mkdir(parents=True)
        quoted = {"record": shlex.quote(str(self.record)), "answers": shlex.quote(str(answers))}
        self.path.write_text(_SCRIPT.format(**quoted))
        self.path.chmod(0o755)
        return self

    def answer(
        self, verb: str, stdout: str = "", *, stderr: str = "", code: int = 0, after: str = ""
    ) -> None:
        """What the program says to this verb (its first two words), at once or ``after`` another one."""
        answers = self.folder / f"{self.program}.answers"
        if after:
            answers = answers / f"{after}.after"
            answers.mkdir(exist_ok=True)
        (answers / verb).write_text(stdout)
        (answers / f"{verb}.code").write_text(str(code))
        if stderr:
            (answers / f"{verb}.stderr").write_text(stderr)

    def reads(self, verb: str) -> None:
        """This verb reads all of its standard input, and keeps it for :meth:`input`."""
        (self.folder / f"{self.program}.answers" / f"{verb}.reads").touch()

    def input(self) -> bytes:
        """What was read."""
        return self.record.with_name(self.record.name + ".stdin").read_bytes()

    def calls(self) -> list[list[str]]:
        """The argv of each call so far, without the program."""
        if not self.record.exists():
            return []
        found: list[list[str]] = [[]]
        for line in self.record.read_text().split("\n")[:-1]:
            if line == "== end of call ==":
                found.append([])
            else:
                found[-1].append(line)
        return found[:-1]

    def environment(self) -> dict[str, str]:
        """The environment of the last call."""
        text = self.record.with_name(self.record.name + ".environment").read_text()
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
