"""Time a whole-image scan against the Kingfisher command line on the same saved image, without a network.

    python benchmarks/scan_image.py ARCHIVE --kingfisher PATH [--runs 3]
    python benchmarks/scan_image.py LAYOUT --digest sha256:… --kingfisher PATH

ARCHIVE: a saved image, layers named by hash; from an OCI LAYOUT one is written first, beside nothing else.
PATH: the executable of the PyPI package kingfisher-bin 2.14.0, installed for this script alone. Both run in
a network namespace of their own, with an empty environment. Runs are interleaved; medians and ratios are
printed, for wall and for CPU time, the fairer one on a shared machine. Ours reads every byte, and opens
archives inside; the peer leaves out what its path filters name.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from images.credentials import Secret
from images.digests import Digest
from provenance.layers import layer_chunks
from provenance.layout import open_blob, open_image, read_blob
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
    # In a namespace with nothing but an unconnected loopback: neither can ask anybody.
    done = subprocess.run(
        ["unshare", "--net", *argv], input=stdin, capture_output=True, env=ENVIRONMENT, check=False
    )
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


def save(layout: Path, digest: Digest, out: Path) -> None:
    """The image as `docker save` writes it: layers as plain tars, named by their diff ids."""
    image = open_image(layout, digest)
    settings = read_blob(layout, image.manifest.config)
    names = []
    with tarfile.open(out, "w") as tar:
        for layer, diff_id in zip(image.manifest.layers, image.settings.diff_ids, strict=True):
            names.append(f"{diff_id.hex}/layer.tar")
            with tempfile.TemporaryFile() as plain, open_blob(layout, layer) as file:
                for chunk in layer_chunks(file, layer, diff_id, str(layer.digest)):
                    plain.write(chunk)
                _add(tar, names[-1], plain)
        config = f"{image.manifest.config.digest.hex}.json"
        _add(tar, config, io.BytesIO(settings))
        document = [{"Config": config, "RepoTags": ["x:1"], "Layers": names}]
        _add(tar, "manifest.json", io.BytesIO(json.dumps(document).encode()))


def _add(tar: tarfile.TarFile, name: str, file: IO[bytes]) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = file.seek(0, io.SEEK_END)
    file.seek(0)
    tar.addfile(entry, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("--digest", type=Digest, help="the image of an OCI layout")
    parser.add_argument("--kingfisher", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        archive = arguments.archive.absolute()
        if arguments.digest:
            save(archive, arguments.digest, Path(folder) / "image.tar")
            archive = Path(folder) / "image.tar"
        compare(archive, arguments.kingfisher.absolute(), arguments.runs)


def compare(archive: Path, kingfisher: Path, count: int) -> None:
    """Interleaved, so that a noisy machine hits both."""
    contestants: dict[str, Callable[[], Run]] = {
        "ours": lambda: ours(archive),
        "kingfisher": lambda: peer(kingfisher, archive),
    }
    runs: dict[str, list[Run]] = {name: [] for name in contestants}
    for _ in range(count):
        for name, start in contestants.items():
            runs[name].append(start())
    report = json.loads(runs["ours"][-1].output)
    size = archive.stat().st_size
    opened = f"{report['openedCount']} archives of {report['openedBytes']} bytes opened"
    print(f"ours: {report['verdict']}, {report['bytesScanned']} of {size} bytes scanned, {opened}")
    for blob in report["coverage"]:
        assert blob["scanned"] == blob["total"], blob
    for what in ("wall", "cpu"):
        medians = {name: statistics.median(getattr(run, what) for run in done) for name, done in runs.items()}
        rates = ", ".join(f"{name} {size / 1e6 / seconds:.0f} MB/s" for name, seconds in medians.items())
        print(f"{what}: {rates}; kingfisher / ours = {medians['kingfisher'] / medians['ours']:.1f}")


if __name__ == "__main__":
    main()
