"""What a launch is intended to be, for tests of the journal."""

from __future__ import annotations

from backend.journal import Intent
from images.digests import Digest

INTENT = Intent(
    launch_id="run-1",
    run_id="run",
    step=1,
    scope="issue/7",
    launch_class="execute",
    lease_id="c" * 32,
    container_name="aib-run-1",
    image_digest=Digest.of(b"image"),
    product="docker",
    endpoint="unix:///run/docker.sock",
    mode="required",
)
