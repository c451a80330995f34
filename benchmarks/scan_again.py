"""Time the scan of a build a second time, with what the first remembered of its layers, over the first.

    python -m benchmarks.scan_again LAYOUT --digest sha256:… [--runs 3] [--new NUMBER]

Each run starts with an empty memory, as the first build here does, and scans again with what that kept.
``--new``: forget this many layers, the largest first, before the second scan: an update of one agent is one.
Both reports must be the same. Prints medians of wall and processor time, and their ratios.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from builder.building.scanning import run_child
from images.credentials import Secret
from images.digests import Digest
from images.oci import OciImage
from provenance.layout import open_image
from provenance.scan.memory import LayerMemory, entry_path
from provenance.scan.report import ScanReport
from provenance.scan.run import scan_image


def scan(image: OciImage, folder: Path) -> tuple[float, float, ScanReport]:
    """Wall and processor seconds, of us and of the child."""
    used = [sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    begin = time.perf_counter()
    report = scan_image(
        image, key=Secret(bytes(32)), run_child=run_child, memory=LayerMemory(folder, folder / "key")
    )
    wall = time.perf_counter() - begin
    after = [sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return wall, sum(after) - sum(used), report


def once(image: OciImage, new: int) -> dict[str, tuple[float, float]]:
    """A first and a second scan."""
    with tempfile.TemporaryDirectory() as name:
        *first, report = scan(image, Path(name))
        layers = sorted(image.manifest.layers, key=lambda layer: -layer.size)
        for layer in layers[:new]:
            entry_path(Path(name), layer.digest).unlink()
        known = sum(entry_path(Path(name), layer.digest).exists() for layer in layers)
        print(f"{known} of {len(layers)} layers known to the second scan", file=sys.stderr)
        *second, again = scan(image, Path(name))
    assert again == report, "a scan with the memory reports something else"
    return {"first": (first[0], first[1]), "second": (second[0], second[1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("layout", type=Path)
    parser.add_argument("--digest", type=Digest, required=True)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--new", type=int, default=0)
    arguments = parser.parse_args()
    image = open_image(arguments.layout.absolute(), arguments.digest)
    runs = [once(image, arguments.new) for _ in range(arguments.runs)]
    found: dict[str, float] = {}
    for at, what in enumerate(("wall", "cpu")):
        first, second = (statistics.median(run[name][at] for run in runs) for name in ("first", "second"))
        found |= {f"{what}_first": first, f"{what}_second": second, f"{what}_ratio": second / first}
    print(json.dumps({name: round(value, 2) for name, value in found.items()}))


if __name__ == "__main__":
    main()
