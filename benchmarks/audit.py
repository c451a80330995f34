"""Measure the layer audit of a real image against sha256sum of the same bytes.

    python benchmarks/audit.py --state DIR --lock FILE [--runs 5]

The same bytes: the tars of our layers and the tars of the artifacts, unpacked beforehand into a scratch
directory for sha256sum; ours reads them compressed, from layout and store, and hashes the stored bytes too.
Runs are interleaved. Prints one JSON object: medians in seconds; ratios hold within one run only.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from builder.building.base_check import read_base
from builder.resources import resource as packaged
from builder.storage.store import ContentStore
from images.key import content_key
from images.lock import Lock
from images.lockfile import parse_lock
from images.oci import OciImage, Platform
from images.render import LABEL_KEY, BuildContext, render
from provenance.audit.report import AuditReport
from provenance.audit.run import audit_image
from provenance.layout import Rehash, layer_tar, list_images, open_image

PLATFORM = Platform("linux", "amd64")


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds, of children too."""

    def cpu() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in used)

    begin, before = time.perf_counter(), cpu()
    act()
    return time.perf_counter() - begin, cpu() - before


def find(layout: Path, lock: Lock) -> tuple[OciImage, BuildContext]:
    base = open_image(layout, lock.base.image(PLATFORM).manifest, PLATFORM)
    context = render(lock, PLATFORM, packaged("Containerfile.in").read_text(), read_base(base))
    for entry in list_images(layout):
        image = open_image(layout, entry.digest, rehash=Rehash.BYTES)
        if dict(image.settings.labels).get(LABEL_KEY) == content_key(lock, PLATFORM):
            return image, context
    raise SystemExit("no image of this lock in the layout: builder build")


def unpack(image: OciImage, context: BuildContext, store: ContentStore, scratch: Path) -> list[Path]:
    """The bytes that the audit compares, as files."""
    written = []
    first = len(image.manifest.layers) - context.image.new_layers
    for number in range(first, len(image.manifest.layers)):
        written.append(scratch / f"layer-{number}.tar")
        with written[-1].open("wb") as out:
            out.writelines(layer_tar(image, number))
    for integrity in sorted({item.artifact.integrity for plan in context.plans for item in plan.placed}):
        written.append(scratch / f"{integrity.hex[:40]}.tar")
        with store.open(integrity, "artifact") as file:
            written[-1].write_bytes(gzip.decompress(file.read()))
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    lock = parse_lock(options.lock.read_bytes())
    store = ContentStore(options.state / "store")
    image, context = find(options.state / "layout", lock)
    reports: list[AuditReport] = []

    def audit() -> None:
        reports.append(
            audit_image(
                image,
                lock.base.image(PLATFORM),
                context,
                lambda artifact: store.open(artifact.integrity, artifact.id),
                workers=os.cpu_count() or 1,
            )
        )

    with tempfile.TemporaryDirectory(prefix="audit-") as scratch:
        files = unpack(image, context, store, Path(scratch))
        size = sum(file.stat().st_size for file in files)
        argv = ["sha256sum", *map(str, files)]
        peer: Callable[[], object] = lambda: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)  # noqa: E731
        runs: dict[str, list[tuple[float, float]]] = {"audit": [], "sha256sum": []}
        for _ in range(options.runs):
            runs["audit"].append(timed(audit))
            runs["sha256sum"].append(timed(peer))
    assert all(report.ok for report in reports)
    medians = {
        f"{name}_{what}": statistics.median(run[which] for run in done)
        for name, done in runs.items()
        for which, what in enumerate(("wall", "cpu"))
    }
    print(
        json.dumps(
            {
                "entries": reports[0].entries,
                "bytes": size,
                **{name: round(value, 3) for name, value in medians.items()},
                "wall_ratio": round(medians["audit_wall"] / medians["sha256sum_wall"], 2),
                "cpu_ratio": round(medians["audit_cpu"] / medians["sha256sum_cpu"], 2),
                "wall_ratio_of_each_run": [
                    round(ours[0] / theirs[0], 2)
                    for ours, theirs in zip(runs["audit"], runs["sha256sum"], strict=True)
                ],
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
