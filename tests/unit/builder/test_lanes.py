"""tools/test with stand-ins for all that it starts: no lane fails, or is left behind, unnoticed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Each part writes down that it began, does what its test says, and then how it was ended.
PYTHON = """\
import os, pathlib, sys, time
words = sys.argv[1:]
files = [word for word in words if word.endswith(".xml")]
if words[:2] == ["-m", "tests.real.private_network"]:
    os.execvp(words[2], words[2:])
if words[:2] != ["-m", "pytest"]:
    sys.exit(0)
if "tests.joined" in words:
    print("joined:", *sorted(os.path.basename(file) for file in files))
    sys.exit(0)
name = os.path.basename(files[0])[:-4]
seen = pathlib.Path(os.environ["SEEN"])
try:
    (seen / f"{name}.began").write_text(os.environ.get("BUILDER_TEST_FIRST_IMAGE", ""))
    if name == os.environ.get("BREAKS"):
        sys.exit(3)
    if name == os.environ.get("HANGS"):
        time.sleep(60)
except KeyboardInterrupt:
    (seen / f"{name}.heard").write_text("")
    sys.exit(2)
pathlib.Path(files[0]).write_text("<testsuites/>")
print(f"{name} has spoken")
sys.exit(1 if name == os.environ.get("FAILS") else 0)
"""
# Each file of its own is taken by one lane alone.
PARTS = (
    *("docker-everywhere", "docker-network", "docker-sharing", "docker-sigstore", "docker-spine"),
    *("docker-wheels", "unit"),
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the real script, and nothing else that is real."""
    made = tmp_path / "checkout"
    (made / "tools").mkdir(parents=True)
    (made / ".venv/bin").mkdir(parents=True)
    (made / "bin").mkdir()
    (made / "seen").mkdir()
    shutil.copy(ROOT / "tools/test", made / "tools")
    (made / "tests/real").mkdir(parents=True)
    for name in ("docs", "sharing", "spine", "wheels"):
        (made / f"tests/real/test_{name}.py").touch()
    scripts = {
        "tools/setup-machine": "#!/bin/sh\n",
        "tools/first-image": "#!/bin/sh\necho three versions\n",
        "bin/unshare": '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n',
        ".venv/bin/python": f"#!{sys.executable}\n{PYTHON}",
    }
    for name, text in scripts.items():
        (made / name).write_text(text)
        (made / name).chmod(0o755)
    return made


def start(checkout: Path, **how: str) -> subprocess.Popen[str]:
    path = f"{checkout / 'bin'}:{os.environ['PATH']}"
    return subprocess.Popen(
        [str(checkout / "tools/test"), "--yes", "--engine", "docker"],
        env={"PATH": path, "SEEN": str(checkout / "seen"), **how},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(path: Path) -> None:
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_every_part_runs_and_the_last_process_reads_all_results(checkout: Path) -> None:
    process = start(checkout)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert said.splitlines()[-1] == "joined: " + " ".join(f"{name}.xml" for name in PARTS)
    for name in PARTS:
        assert said.count(f"{name} has spoken") == 1
    first = Path((checkout / "seen/docker-spine.began").read_text())
    assert first.read_text() == "three versions\n"


def test_failed_tests_are_left_to_the_summary(checkout: Path) -> None:
    process = start(checkout, FAILS="unit")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert said.splitlines()[-1] == "joined: " + " ".join(f"{name}.xml" for name in PARTS)


def test_a_part_that_does_not_come_to_its_end_ends_all(checkout: Path) -> None:
    process = start(checkout, BREAKS="unit", HANGS="docker-spine")
    said, _ = process.communicate(timeout=50)
    assert process.returncode == 3, said
    assert "joined" not in said
    assert "error: the lane lane_units of the tests did not come to its end" in said
    began, heard = (checkout / f"seen/docker-spine.{what}" for what in ("began", "heard"))
    assert heard.exists() or not began.exists()


def test_without_a_first_image_nothing_waits_for_ever(checkout: Path) -> None:
    (checkout / "tools/first-image").write_text("#!/bin/sh\nexit 4\n")
    process = start(checkout)
    said, _ = process.communicate(timeout=50)
    assert process.returncode == 4, said
    assert "joined" not in said


def test_an_interruption_is_heard_in_every_lane(checkout: Path) -> None:
    process = start(checkout, HANGS="docker-spine")
    wait_for(checkout / "seen/docker-spine.began")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=50)
    assert process.returncode == 130, said
    assert (checkout / "seen/docker-spine.heard").exists()
    assert "joined" not in said
