"""Time a whole-image scan against the Kingfisher command line on the same saved image.

    python benchmarks/scan_image.py ARCHIVE --kingfisher PATH [--runs 3]

ARCHIVE: a saved image, layers named by hash (as skopeo writes a docker-archive). PATH: the executable of
the PyPI package kingfisher-bin 2.14.0, installed for this script alone. Runs are interleaved; medians and
ratios are printed, for wall and for CPU time, the fairer one on a shared machine. Ours reads every byte; the
peer leaves out what its path filters name, and opens archives inside of layers, which ours does not.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from images.credentials import Secret
from provenance.scan.request import ScanRequest, Target

ENVIRONMENT = {"HOME": "/", "PATH": "/usr/bin:/bin"}


@dataclass(frozen=True)
class Run:
    """One run: wall and CPU seconds, and what it wrote."""

    wall: float
    cpu: float
    output: bytes


def timed(argv: list[str], stdin: bytes = b"") -> Run:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    done = subprocess.run(argv, input=stdin, capture_output=True, env=ENVIRONMENT, check=False)
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Kingfisher answers 200 for findings.
    assert done.returncode in (0, 200), done.stderr[-2000:]
    return Run(wall, cpu, done.stdout)


def ours(archive: Path) -> Run:
    request = ScanRequest(target=Target.ARCHIVE, path=archive, digest=None, key=Secret(bytes(32)))
    return timed([sys.executable, "-I", "-m", "provenance.scan.child"], request.to_json())


def peer(kingfisher: Path, archive: Path) -> Run:
    # Without --no-limits it skips files of more than 256 MB, so also the layers of a saved image.
    options = ["--no-validate", "--no-update-check", "--no-limits", "--format", "json"]
    return timed([str(kingfisher), "scan", "docker", "--archive", str(archive), *options])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("--kingfisher", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    archive = arguments.archive.absolute()
    contestants: dict[str, Callable[[], Run]] = {
        "ours": lambda: ours(archive),
        "kingfisher": lambda: peer(arguments.kingfisher, archive),
    }
    runs: dict[str, list[Run]] = {name: [] for name in contestants}
    for _ in range(arguments.runs):
        for name, start in contestants.items():
            runs[name].append(start())
    report = json.loads(runs["ours"][-1].output)
    size = archive.stat().st_size
    print(f"ours: {report['verdict']}, {report['bytesScanned']} of {size} bytes scanned")
    for what in ("wall", "cpu"):
        medians = {name: statistics.median(getattr(run, what) for run in done) for name, done in runs.items()}
        rates = ", ".join(f"{name} {size / 1e6 / seconds:.0f} MB/s" for name, seconds in medians.items())
        print(f"{what}: {rates}; kingfisher / ours = {medians['kingfisher'] / medians['ours']:.1f}")


if __name__ == "__main__":
    main()
