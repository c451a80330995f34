"""``python -m tests.fuzz [TARGET…] [--inputs N] [--seed S]``: exit code 0 when nothing was found.

The same seed makes the same inputs. An input that was found is kept in a file; ``--only N`` runs that one
again, in this process, with its traceback.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tests.fuzz.running import Result, make_input, run_apart
from tests.fuzz.target import Target, all_targets

KEPT: Final = Path(__file__).resolve().parents[2] / ".state" / "fuzz"


def main() -> int:
    """Run what the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    parser.add_argument("--inputs", type=int, default=20_000, help="of all targets together (default: 20000)")
    parser.add_argument("--seed", type=int, default=1, help="of the inputs (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, help="targets side by side (default: 2)")
    parser.add_argument("--keep", type=Path, default=KEPT, help="folder for inputs that were found")
    parser.add_argument("--only", type=int, metavar="N", help="one input of one target, here")
    parser.add_argument("--list", action="store_true", help="the names of the targets")
    parser.add_argument("--json", action="store_true", help="one object a line")
    given = parser.parse_args()
    known = all_targets()
    if unknown := [name for name in given.targets if name not in known]:
        parser.error(f"no such target: {unknown[0]} (see --list)")
    chosen = [known[name] for name in given.targets or known]
    if given.list:
        say("\n".join(one.name for one in chosen))
        return 0
    if given.only is not None:
        return again(chosen[0], given.seed, given.only)
    shares = sum(one.share for one in chosen)
    wanted = [(one, math.ceil(given.inputs * one.share / shares)) for one in chosen]
    results = []
    for result in run_apart(wanted, given.seed, given.keep, jobs=given.jobs):
        say(json.dumps(asdict(result)) if given.json else line(result))
        results.append(result)
    if not given.json:
        say(total(results))
    return 1 if any(result.findings for result in results) else 0


def again(target: Target, seed: int, number: int) -> int:
    """One input without a net."""
    with tempfile.TemporaryDirectory() as folder:
        ready = target.make(Path(folder))
        data = make_input(target, ready, seed, number)
        say(repr(data[:2000]))
        say(repr(ready.read(data))[:2000])
    return 0


def line(result: Result) -> str:
    """One target for people."""
    text = (
        f"{result.target}: {result.inputs} inputs, {result.accepted} accepted, {result.refused} refused, "
        f"{result.seconds:.1f} s"
    )
    return text + "".join(f"\n  FOUND {one.number}: {one.what}  {one.file}" for one in result.findings)


def total(results: list[Result]) -> str:
    """All of them for people."""
    inputs, findings = sum(one.inputs for one in results), sum(len(one.findings) for one in results)
    seconds = sum(one.seconds for one in results)
    return f"{len(results)} targets, {inputs} inputs, {seconds:.0f} s of processor time, {findings} findings"


def say(text: str) -> None:
    """At once: a run may take hours."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
