"""Measure `builder build` with nothing changed beside `docker buildx build` with every step cached.

    python -m benchmarks.known --state DIR --config-dir DIR --project DIR [--runs N]

The state holds the proved image of the project's lock. buildx gets the same rendered context and the same
BuildKit, warmed by one build, and writes no output: the least that it can do. Both are whole processes, taken
in turn. Prints one JSON object; times in seconds. Ratios hold within one run on one machine only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

from backend.runner import Command, run
from benchmarks.build import Bench, open_bench
from builder.building.staging import stage_build
from builder.storage.store import ContentStore
from images.lockfile import LOCK_NAME


def timed(argv: tuple[str, ...], environment: dict[str, str], directory: Path) -> float:
    """Seconds of one process that must succeed."""
    begun = time.monotonic()
    done = run(Command(argv=argv, environment=environment, deadline=900, working_dir=directory))
    assert done.ok, done.stderr[-2000:].decode("utf-8", "replace")
    return time.monotonic() - begun


def measure(bench: Bench, asked: argparse.Namespace) -> dict[str, object]:
    """Alternate the two, so that both see the same machine."""
    ours = (
        str(Path(sys.executable).with_name("builder")),
        "build",
        f"--state={asked.state}",
        f"--config-dir={asked.config_dir}",
        "--quiet",
    )
    staging = bench.root / "staged"
    staging.mkdir(mode=0o700)
    staged = stage_build(
        bench.context(bench.lock), bench.base, ContentStore(bench.state.store), bench.buildx, staging
    )
    with bench.container() as container:
        environment = {**container.environment, "BUILDX_CONFIG": str(bench.root / "buildx")}
        create = ("create", "--name=known", "--driver=remote", container.endpoint)
        timed((str(bench.buildx), *create), environment, bench.root)
        theirs = (
            str(bench.buildx),
            "build",
            "--builder=known",
            "--progress=plain",
            "--network=none",
            "--provenance=false",
            f"--build-context=base=oci-layout://{bench.base.layout}@{bench.base.digest}",
            f"--build-context=artifacts={staged.artifacts}",
            str(staged.context),
            f"--file={staged.context / 'Containerfile'}",
        )
        timed(theirs, environment, bench.root)
        timed(ours, dict(os.environ), asked.project)
        pairs = [
            (timed(ours, dict(os.environ), asked.project), timed(theirs, environment, bench.root))
            for _ in range(asked.runs)
        ]
    median = [statistics.median(side) for side in zip(*pairs, strict=True)]
    return {
        "runs": asked.runs,
        "builder": round(median[0], 3),
        "builder_least": round(min(pair[0] for pair in pairs), 3),
        "buildx_all_cached": round(median[1], 3),
        "ratio": round(median[0] / median[1], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("state", "config-dir", "project"):
        parser.add_argument(f"--{name}", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--engine", choices=("docker", "podman"), default="docker")
    parser.add_argument("--runs", type=int, default=9)
    asked = parser.parse_args()
    with open_bench(asked.state, asked.project / LOCK_NAME, asked.engine) as bench:
        print(json.dumps({"cpus": os.cpu_count(), **measure(bench, asked)}, indent=2))


if __name__ == "__main__":
    main()
