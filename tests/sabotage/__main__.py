"""Make each edit in a copy, run its test there, and fail if one of them stays green."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.sabotage.edits import EDITS, Edit

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "images",
    "provenance",
    "backend",
    "builder",
    "tests",
    "docs",
    "pyproject.toml",
    "Containerfile.in",
    "tools",
    "action",
    "benchmarks",
)


def main() -> int:
    """Exit code 0 when every edit was noticed."""
    wanted = sys.argv[1:]
    edits = [
        edit for edit in EDITS if not wanted or any(word in f"{edit.file}: {edit.old}" for word in wanted)
    ]
    with tempfile.TemporaryDirectory(prefix="sabotage-") as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            elif source.exists():
                shutil.copy2(source, copy / name)
        tests = sorted({edit.test for edit in edits})
        if run_tests(copy, tests) != 0:
            say("the tests named here are red without any edit")
            return 1
        unnoticed = [edit for edit in edits if not noticed(copy, edit)]
    for edit in unnoticed:
        say(f"NOT NOTICED: {edit.file}: {edit.old.strip()!r} -> {edit.new.strip()!r} by {edit.test}")
    say(f"{len(edits) - len(unnoticed)} of {len(edits)} edits noticed")
    return 1 if unnoticed else 0


def noticed(copy: Path, edit: Edit) -> bool:
    """The test fails (exit code 1, not an error of collection) with the edit in place."""
    path = copy / edit.file
    original = path.read_text()
    path.write_text(original.replace(edit.old, edit.new))
    try:
        code = run_tests(copy, [edit.test])
    finally:
        path.write_text(original)
    say(f"{'noticed' if code == 1 else f'exit code {code}'}: {edit.file}: {edit.old.strip()}")
    return code == 1


def run_tests(copy: Path, tests: list[str]) -> int:
    """pytest's exit code, with the copy's modules before the installed ones."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        check=False,
    )
    return done.returncode


def say(line: str) -> None:
    """One line, at once: the whole takes minutes."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
