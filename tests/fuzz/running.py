"""Run a target in a child of its own, within bounds of time and memory, and tell what was found."""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import mmap
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from tests.fuzz.found import FOUND
from tests.fuzz.target import Ready, Target

MEMORY: Final = 1 << 30  # bytes beyond what the child begins with
INPUT_SECONDS: Final = 10.0  # of processor time; the usual is a millisecond
FILE_BYTES: Final = 1 << 28
_LATE: Final = (
    "packaging.metadata",
    "packaging.requirements",
    "packaging.tags",
    "securesystemslib.dsse",
    "securesystemslib.signer",
    "sigstore.models",
    "sigstore.verify",
    "sigstore_models.bundle.v1",
    "tomlkit",
)
_KINDS: Final = 10  # different findings of one target, before it gives up


class TooSlow(BaseException):
    """One input took more than INPUT_SECONDS. No reader catches it."""


@dataclass(frozen=True)
class Finding:
    """An input with a wrong answer. ``number``: which of the run; below 0: see found.py."""

    number: int
    what: str
    file: str = ""


@dataclass
class Result:
    """What a target's run came to. ``digest``: of all inputs, the same for the same seed."""

    target: str
    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    digest: str = ""
    findings: list[Finding] = field(default_factory=list)


def make_input(target: Target, ready: Ready, seed: int, number: int) -> bytes:
    """Input ``number`` of a run: the same on each machine, whatever came before."""
    return target.mutate(random.Random(f"{seed}:{target.name}:{number}"), ready.seeds)  # noqa: S311


@dataclass(frozen=True)
class _Child:
    """A run that is under way."""

    target: Target
    pipe: int
    progress: mmap.mmap


def run_apart(
    wanted: Sequence[tuple[Target, int]], seed: int, keep: Path, *, first: int = 0, jobs: int = 2
) -> Iterator[Result]:
    """Each target in a child process: a reader that crashes or eats everything ends that alone."""
    _warm_up()
    waiting, running = list(wanted), dict[int, _Child]()
    while waiting or running:
        while waiting and len(running) < jobs:
            target, inputs = waiting.pop(0)
            pid, child = _start(target, inputs, seed, keep, first)
            running[pid] = child
        pid, status = os.wait()
        if pid in running:
            yield _end(running.pop(pid), os.waitstatus_to_exitcode(status))


def _warm_up() -> None:
    """What the program reads late, read once for all children."""
    for name in _LATE:
        importlib.import_module(name)


def _start(target: Target, inputs: int, seed: int, keep: Path, first: int) -> tuple[int, _Child]:
    progress = mmap.mmap(-1, 8)
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, _Child(target, reading, progress)
    code = 1
    try:
        os.close(reading)
        result = _run(target, inputs, seed, keep, first=first, progress=progress)
        with os.fdopen(writing, "w") as pipe:
            json.dump(asdict(result), pipe)
        code = 0
    except BaseException:  # noqa: BLE001  (a child that must not return)
        traceback.print_exc()
    os._exit(code)


def _end(child: _Child, code: int) -> Result:
    with os.fdopen(child.pipe) as pipe:
        said = pipe.read()
    if said and code == 0:
        document = json.loads(said)
        return Result(**document | {"findings": [Finding(**one) for one in document["findings"]]})
    number = int.from_bytes(child.progress[:], "little", signed=True)
    how = f"ended by signal {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return Result(child.target.name, findings=[Finding(number, f"the process {how}")])


def _run(target: Target, inputs: int, seed: int, keep: Path, *, first: int, progress: mmap.mmap) -> Result:
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{target.name}-") as folder:
        warnings.simplefilter("error")
        ready = target.make(Path(folder))
        for data in ready.seeds:
            ready.read(data)  # whoever refuses its own seeds reads nothing
        _limit(inputs)
        result, kinds, hashed = Result(target.name), set(), hashlib.sha256()
        begun = time.process_time()
        for number, data in _inputs(target, ready, inputs, seed, first):
            progress[:] = number.to_bytes(8, "little", signed=True)
            hashed.update(data)
            result.inputs += 1
            what = _try(target, ready, data, result)
            if what and what not in kinds:
                kinds.add(what)
                result.findings.append(Finding(number, what, _keep(keep, target, number, data)))
                if len(kinds) >= _KINDS:
                    break
        result.seconds = time.process_time() - begun
        result.digest = hashed.hexdigest()
        return result


def _inputs(target: Target, ready: Ready, inputs: int, seed: int, first: int) -> Iterator[tuple[int, bytes]]:
    for number, data in enumerate(FOUND.get(target.name, ()), 1):
        yield -number, data
    for number in range(first, first + inputs):
        yield number, make_input(target, ready, seed, number)


def _try(target: Target, ready: Ready, data: bytes, result: Result) -> str:
    """What is wrong with the answer; empty when it is one of the two that there are."""
    begun = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, INPUT_SECONDS)
        ready.read(data)
        result.accepted += 1
    except target.refusals:
        result.refused += 1
    except (Exception, TooSlow) as broken:  # noqa: BLE001  (that is what it looks for)
        return _place(broken)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    if time.process_time() - begun > INPUT_SECONDS:
        return "TooSlow: in a library"
    return ""


def _place(broken: BaseException) -> str:
    """The error, and where in the program: one line, the same for the same fault."""
    frames = traceback.extract_tb(broken.__traceback__)
    root = str(Path(__file__).resolve().parents[2])
    ours = [f for f in frames if f.filename.startswith(root) and "/.venv/" not in f.filename] or list(frames)
    last = ours[-1]
    text = str(broken).split("\n")[0][:160] if isinstance(broken, AssertionError) else ""
    return f"{type(broken).__name__} at {last.filename.removeprefix(root + '/')}:{last.lineno} {text}".strip()


def _keep(folder: Path, target: Target, number: int, data: bytes) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{target.name}-{number}"
    path.write_bytes(data)
    return str(path)


def _limit(inputs: int) -> None:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _lower(resource.RLIMIT_AS, pages * resource.getpagesize() + MEMORY)
    _lower(resource.RLIMIT_FSIZE, FILE_BYTES)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_CPU, int(120 + inputs * 0.25))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGVTALRM, _too_slow)


def _lower(which: int, value: int) -> None:
    _, most = resource.getrlimit(which)
    value = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(which, (value, value))


def _too_slow(_signal: int, _frame: FrameType | None) -> None:
    raise TooSlow
