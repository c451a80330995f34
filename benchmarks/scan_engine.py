"""Compare the two Vectorscan bindings on one file: time on one and two threads, and equal hits.

    python benchmarks/scan_engine.py FILE [--runs 5]

FILE: any large file, best the tar of a real image. `hyperscan` is no dependency of the product:
install it for this script alone (pip install --no-deps hyperscan==0.9.1). Prints ratios of wall and
CPU time; absolute figures depend on the machine, and on a shared one CPU time is the fairer of the
two.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import hyperscan
import pyperscan

from provenance.scan.engine import Engine

BLOCK = 4 << 20
Hits = list[tuple[int, int]]
Scanner = Callable[[memoryview], Hits]


def pyperscan_scanner(engine: Engine) -> Callable[[], Scanner]:
    database = pyperscan.BlockDatabase(
        *(pyperscan.Pattern(probe.expression, pyperscan.Flag.DOTALL) for probe in engine.probes)
    )

    def build() -> Scanner:
        hits: Hits = []

        def on_match(_context: None, tag: int, _start: int, end: int) -> pyperscan.Scan:
            hits.append((tag, end))
            return pyperscan.Scan.Continue

        scanner = database.build(None, on_match)

        def scan(block: memoryview) -> Hits:
            hits.clear()
            scanner.scan(block)
            return list(hits)

        return scan

    return build


def hyperscan_scanner(engine: Engine) -> Callable[[], Scanner]:
    database = hyperscan.Database()
    database.compile(
        expressions=[probe.expression for probe in engine.probes],
        ids=list(range(len(engine.probes))),
        flags=[hyperscan.HS_FLAG_DOTALL] * len(engine.probes),
    )

    def build() -> Scanner:
        scratch = hyperscan.Scratch(database)

        def scan(block: memoryview) -> Hits:
            hits: Hits = []

            def on_match(tag: int, _start: int, end: int, _flags: int, _context: object) -> bool:
                hits.append((tag, end))
                return False

            database.scan(block, match_event_handler=on_match, scratch=scratch)
            return hits

        return scan

    return build


def run(build: Callable[[], Scanner], data: bytes, threads: int) -> tuple[float, float, Hits]:
    """Wall seconds, CPU seconds, and all hits with their place in the file."""
    found: list[Hits] = [[] for _ in range(threads)]
    scanners = [build() for _ in range(threads)]
    whole = memoryview(data)

    def work(number: int) -> None:
        for at in range(number * BLOCK, len(data), threads * BLOCK):
            found[number] += [(tag, at + end) for tag, end in scanners[number](whole[at : at + BLOCK])]

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    begin, used = time.perf_counter(), time.process_time()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    wall, cpu = time.perf_counter() - begin, time.process_time() - used
    return wall, cpu, sorted(hit for hits in found for hit in hits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    data = arguments.file.read_bytes()
    engine = Engine()
    builds: dict[str, Callable[[], Scanner]] = {}
    for name, make in (("pyperscan", pyperscan_scanner), ("hyperscan", hyperscan_scanner)):
        begin = time.perf_counter()
        builds[name] = make(engine)
        print(f"{name}: {len(engine.probes)} patterns compiled in {time.perf_counter() - begin:.2f} s")
    for threads in (1, 2):
        compare(builds, data, threads, arguments.runs)


def compare(builds: dict[str, Callable[[], Scanner]], data: bytes, threads: int, runs: int) -> None:
    """Interleaved, so that a noisy machine hits both."""
    walls: dict[str, list[float]] = {name: [] for name in builds}
    cpus: dict[str, list[float]] = {name: [] for name in builds}
    hits: dict[str, Hits] = {}
    for _ in range(runs):
        for name, build in builds.items():
            wall, cpu, hits[name] = run(build, data, threads)
            walls[name].append(wall)
            cpus[name].append(cpu)
    assert hits["pyperscan"] == hits["hyperscan"], "the bindings do not report the same"
    for what, times in (("wall", walls), ("CPU", cpus)):
        medians = {name: statistics.median(values) for name, values in times.items()}
        rates = ", ".join(f"{name} {len(data) / 1e9 / seconds:.2f} GB/s" for name, seconds in medians.items())
        ratio = medians["hyperscan"] / medians["pyperscan"]
        print(f"{threads} thread(s), {what}: {rates}; hyperscan / pyperscan = {ratio:.2f}")
    print(f"{threads} thread(s): {len(hits['pyperscan'])} hits, the same from both")


if __name__ == "__main__":
    main()
