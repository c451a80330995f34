"""Measure verification of a proved image: signatures and policy by cosign, the full re-hash by sha256sum.

    python benchmarks/verify.py --state DIR --policy FILE --lock FILE --digest sha256:… [--cosign PATH]

Ours judges all bundles of the image in process; cosign (built as for the real tests) one, in a process of
its own. Runs are interleaved. Prints one JSON object of medians, in seconds; ratios hold within one run only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from images.digests import Digest
from images.oci import OciImage
from provenance.bundles import open_bundle
from provenance.expectations import Expectation
from provenance.keys import PublicKey
from provenance.layout import Rehash, blob_path, open_image
from provenance.policy import Policy, load_policy
from provenance.policy_model import Role
from provenance.predicates import PROVENANCE_TYPE
from provenance.referrers import read_referrers
from provenance.statements import parse_statement
from provenance.verify import Purpose, VerifyRequest, verify


def timed(act: Callable[[], object]) -> float:
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def cosign_command(cosign: Path, folder: Path, image: OciImage, policy: Policy) -> list[str]:
    """The check of the provenance bundle, as cosign makes it."""
    for one in read_referrers(image.layout, image.digest).bundles:
        statement = parse_statement(open_bundle(one.data, "bundle").payload, "bundle")
        if statement.predicate_type == PROVENANCE_TYPE:
            (folder / "bundle.json").write_bytes(one.data)
    key = next(
        entry.signer
        for entry in policy.trust
        if entry.role is Role.BUILDER and isinstance(entry.signer, PublicKey)
    )
    (folder / "key.pub").write_bytes(key.pem)
    return [
        str(cosign),
        "verify-blob-attestation",
        f"--bundle={folder / 'bundle.json'}",
        f"--key={folder / 'key.pub'}",
        "--insecure-ignore-tlog",
        "--type=slsaprovenance1",
        f"--digest={image.digest.hex}",
        "--digestAlg=sha256",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--digest", type=Digest, required=True)
    parser.add_argument("--cosign", type=Path)
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    policy = load_policy(options.policy)
    image = open_image(options.state / "layout", options.digest, rehash=Rehash.BYTES)
    request = VerifyRequest(
        layout=image.layout,
        digest=image.digest,
        platform=image.platform,
        policy=policy,
        expectation=Expectation(lock=options.lock.read_bytes()),
        now=datetime.now(UTC),
        purpose=Purpose.ADMISSION,
    )
    verify(request).require()
    layers = [str(blob_path(image.layout, layer.digest)) for layer in image.manifest.layers]
    found: dict[str, list[float]] = {"signatures_and_policy": [], "rehash": [], "sha256sum": [], "cosign": []}
    with tempfile.TemporaryDirectory() as folder:
        peer = cosign_command(options.cosign, Path(folder), image, policy) if options.cosign else None
        environment = {"HOME": folder, "PATH": "/usr/bin:/bin"}
        for _ in range(options.runs):
            found["signatures_and_policy"].append(
                timed(lambda: verify(replace(request, opened=image)).require())
            )
            found["rehash"].append(timed(lambda: open_image(image.layout, image.digest, rehash=Rehash.BYTES)))
            found["sha256sum"].append(
                timed(lambda: subprocess.run(["sha256sum", *layers], capture_output=True, check=True))
            )
            if peer:
                found["cosign"].append(
                    timed(lambda: subprocess.run(peer, env=environment, capture_output=True, check=True))
                )
    medians = {name: round(statistics.median(times), 4) for name, times in found.items() if times}
    ratios = {
        "rehash / sha256sum": round(medians["rehash"] / medians["sha256sum"], 2),
        # What it costs to judge evidence and policy again at each launch, of what admission does anyway.
        "signatures_and_policy / rehash": round(medians["signatures_and_policy"] / medians["rehash"], 3),
    }
    if peer:
        ratios["signatures_and_policy / cosign"] = round(
            medians["signatures_and_policy"] / medians["cosign"], 2
        )
    size = sum(layer.size for layer in image.manifest.layers)
    json.dump(
        {"runs": options.runs, "bytes": size, "medians": medians, "ratios": ratios}, sys.stdout, indent=1
    )
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
