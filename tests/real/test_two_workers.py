"""Two workers of one state root at once, each on a repository and with a credential of its own."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.agent_command import Output
from backend.launch import launch
from backend.projection.credentials import read_credential
from backend.projection.placing import CLAUDE_KEY, projection_of
from backend.projection.routes import CredentialName, Route
from backend.records import LaunchEnding, LaunchRecord
from backend.requests import LaunchSource, SourceRoute
from backend.room import ExportStatus
from tests.fakes.projected import dummy
from tests.real.ground import Ground, ground, world
from tests.real.test_workspace import Desk, bytes_below, desk_at

__all__ = ["ground", "world"]

pytestmark = pytest.mark.real

# Nothing is looked at before both are at it; the word comes through /source, which the host alone can change.
LOOK = f"""
set -e
echo "$1" >mine
git add --all
git commit --quiet -m "$1"
git rev-parse HEAD >"$HOME/tip"
echo ready
until [ -e /source/go ]; do sleep 0.1; done
sha256sum <"$HOME/{CLAUDE_KEY}"
cat "$HOME/tip"
git log --all --format='%H %s'
git cat-file --batch-all-objects --batch-check
git for-each-ref
find /workspace /source /tmp /run /dev/shm "$HOME" -type f -exec cat {{}} + 2>/dev/null || true
cat /proc/self/mountinfo /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' || true
hostname
echo looked
"""


@dataclass
class Worker:
    """One launch: what is its own, and what it said while the other ran too."""

    name: str
    desk: Desk
    key: str
    said: bytearray = field(default_factory=bytearray)
    record: LaunchRecord | None = None

    def work(self, both: threading.Barrier) -> None:
        staging = self.desk.staging()
        prepared = self.desk.prepared(staging)
        go = prepared.tree.folder / "go"

        def take(chunk: bytes) -> None:
            self.said.extend(chunk)
            if b"ready" in self.said and not go.exists():
                both.wait(60)
                go.touch()

        given = read_credential(CredentialName(Route.CLAUDE_API_KEY), self.key.encode(), datetime.now(UTC))
        request = self.desk.ground.request(
            *("sh", "-c", LOOK, "sh", f"work-of-{self.name}"),
            run_id=f"worker-{self.name}",
            deadline=240.0,
            source=LaunchSource(prepared=prepared, route=SourceRoute.BIND),
            projection=projection_of([given]),
        )
        with self.desk.control(staging) as controller:
            output = Output(on_stdout=take, on_stderr=self.said.extend)
            self.record = launch(controller, self.desk.ground.admitted, request, output)


def test_b4_two_workers_at_once_see_and_touch_nothing_of_each_other(ground: Ground, tmp_path: Path) -> None:
    workers = []
    for name in ("north", "south"):
        (tmp_path / name).mkdir()
        desk = desk_at(ground, tmp_path / name)
        desk.operator.commit({f"only-in-{name}": f"{name}\n"}, f"of {name}")
        workers.append(Worker(name, desk, f"{dummy('key')}{name}"))
    before = [bytes_below(worker.desk.operator.path) for worker in workers]
    both = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        failures = [done.exception() for done in [pool.submit(worker.work, both) for worker in workers]]
    assert failures == [None, None], [bytes(worker.said[-1000:]) for worker in workers]
    for worker, other in (workers, reversed(workers)):
        said, record = worker.said.decode("utf-8", "replace"), worker.record
        assert record is not None
        assert (record.observed.ending, record.exit_code) == (LaunchEnding.COMPLETED, 0), said
        assert said.endswith("looked\n")
        assert hashlib.sha256(worker.key.encode()).hexdigest() in said
        tip, theirs = tip_of(worker), tip_of(other)
        assert tip in said
        strange = (other.name, theirs, other.desk.operator.head, other.key, f"worker-{other.name}")
        assert [one for one in strange if one in said] == []
        assert worker.key not in said
        seen = record.observed.space
        assert seen is not None
        assert seen.place == worker.desk.candidates / f"worker-{worker.name}.1.git"
    assert [bytes_below(worker.desk.operator.path) for worker in workers] == before
    assert workers[0].desk.left() == ()


def tip_of(worker: Worker) -> str:
    """The commit that came home: on this worker's own commit, and nothing of the other's with it."""
    assert worker.record is not None
    seen = worker.record.observed.space
    assert seen is not None
    assert seen.status is ExportStatus.EXPORTED
    assert seen.imported is not None
    assert seen.imported.commit.parents == (worker.desk.operator.head,)
    return seen.imported.commit.name
