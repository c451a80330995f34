"""Print the recall of the scanner by group, and what the clean twin gives: python -m tests.corpus [SEED]."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from provenance.scan.run import scan_image
from tests.corpus.planting import plant_image, recall
from tests.corpus.plants import plants
from tests.fakes.credentials import KEY
from tests.unit.provenance.scan.test_child import run_child


def main() -> int:
    """0: everything planted was found, and nothing else."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    counted = []
    for twin in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            planted = list(plants(seed, twin=twin))
            image, documents = plant_image(Path(folder), planted)
            report = scan_image(image, key=KEY, run_child=run_child, documents=documents)
        counted.append((recall(planted, report), report))
    (found, _), (_, clean) = counted
    sys.stdout.write(f"{found.table()}\nclean twin: {len(clean.findings)} findings, {clean.verdict}\n")
    missed = [f"missed: {group} {id}" for group, ids in found.missed.items() for id in ids]
    wrong = [f"wrong: {finding.rule} in {finding.place}" for finding in clean.findings]
    sys.stdout.writelines(f"{line}\n" for line in (*missed, *wrong))
    return 1 if missed or wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
