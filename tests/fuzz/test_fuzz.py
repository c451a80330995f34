"""Every reader of untrusted bytes, with many mutated inputs: our own refusal or a right answer, in bounds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.attacks import Position, attack
from tests.fuzz.running import make_input
from tests.fuzz.target import all_targets

ROOT = Path(__file__).resolve().parents[2]
TARGETS = all_targets()
INPUTS = 20_000
LONG_INPUTS = 1_000_000
Results = dict[str, dict[str, Any]]


def run(inputs: int, seed: int, keep: Path) -> Results:
    """All targets in children; a line of JSON for each."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.fuzz",
            f"--inputs={inputs}",
            f"--seed={seed}",
            f"--keep={keep}",
            "--json",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["target"]: one for one in found}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(INPUTS, 1, tmp_path_factory.mktemp("found"))


@attack(by=Position.STRANGER)
@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_refuses_in_its_own_words_or_answers_rightly(name: str, results: Results) -> None:
    one = results[name]
    assert not one["findings"], f"again: python -m tests.fuzz {name} --seed 1 --only NUMBER"
    assert one["accepted"] + one["refused"] == one["inputs"] > 0


def test_as_many_inputs_as_promised_and_both_answers(results: Results) -> None:
    assert sum(one["inputs"] for one in results.values()) >= INPUTS
    assert all(
        sum(one[answer] for one in results.values()) > INPUTS / 10 for answer in ("accepted", "refused")
    )


@pytest.mark.long
def test_a_million_inputs(tmp_path: Path) -> None:
    found = run(LONG_INPUTS, 2, tmp_path / "found")
    assert {name: one["findings"] for name, one in found.items() if one["findings"]} == {}
    assert sum(one["inputs"] for one in found.values()) >= LONG_INPUTS


@pytest.mark.parametrize("name", ["builder-toml", "export-frame", "registry-facts", "terminal-output"])
def test_the_same_seed_makes_the_same_inputs(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    ready = target.make(tmp_path)
    made = [make_input(target, ready, 5, number) for number in range(20)]
    assert made == [make_input(target, ready, 5, number) for number in range(20)]
    assert len(set(made)) > 10
    assert made != [make_input(target, ready, 6, number) for number in range(20)]


@pytest.mark.parametrize(
    ("reader", "said"),
    [
        ("raise KeyError(1)", "KeyError at"),
        ("while True: pass", "TooSlow at"),
        ("bytearray(1 << 31)", "MemoryError at"),
        ("law(False, 'took it')", "WrongAccept at"),
        ("os.kill(os.getpid(), 11)", "ended by signal SIGSEGV"),
    ],
)
def test_what_a_broken_reader_does_is_found(reader: str, said: str, tmp_path: Path) -> None:
    """The harness itself: a crash, an endless loop, too much memory, a wrong answer."""
    code = f"""
import os, sys
from pathlib import Path
from tests.fuzz import running
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.target import Ready, Target, law
running.INPUT_SECONDS = 0.2
def read(raw):
    if raw != b"seed":
        {reader}
target = Target("broken", lambda _: Ready((b"seed",), read), mutate_bytes)
(result,) = running.run_apart([(target, 3)], 1, Path(sys.argv[1]))
print(*(one.what for one in result.findings))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert said in done.stdout, done.stderr
