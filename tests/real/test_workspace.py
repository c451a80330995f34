"""An agent on a repository, on real engines: what it gets, what it cannot do, how its commits come home."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backend.agent_command import Output
from backend.journal import Boundary
from backend.launch import Controller, launch
from backend.measuring import FLOOR
from backend.ownership import LABEL_STATE
from backend.records import LaunchEnding, LaunchRecord
from backend.recovery import recover
from backend.requests import LaunchClass, LaunchRequest, LaunchSource, SourceRoute
from backend.room import ExportStatus
from backend.workspace.candidates import prepare_candidate
from backend.workspace.git import Git, open_git
from backend.workspace.origin import find_origin
from backend.workspace.prepared import PreparedSource, prepare_source
from backend.workspace.refusals import CandidateReason, CandidateRefused
from builder.running import launched
from builder.sourcing import fetch_line
from tests.fakes.kills import HOLDING_VOLUMES, KILLS, OF_A_CONTINUATION, OF_FILES, DyingJournal, When
from tests.fakes.repositories import ENVIRONMENT, Repo
from tests.real.ground import Ground, ground, open_journal, world

__all__ = ["ground", "world"]

pytestmark = pytest.mark.real

# What an agent does: look around, work, commit, and leave something behind.
WORK = r"""
set -e
test "$(git rev-parse HEAD)" = "$1"
test -z "$(git status --porcelain)"
cmp readme /source/readme
for item in /source/readme /source/new; do (: >>"$item") 2>/dev/null && echo "wrote $item"; done
(mkdir /source/sub/below) 2>/dev/null && echo "made a directory"
(chmod 777 /source) 2>/dev/null && echo "changed /source"
! grep -rF "$2" .git || echo "a path of the host is inside"
test ! -e .git/objects/info/alternates
echo two >>readme
printf '#!/bin/sh\necho checked "$(cat readme | wc -l)"\n' >check.sh
chmod +x check.sh
git add --all
git commit --quiet -m "by the agent"
git rev-parse HEAD
echo dirty >>readme
echo untracked >left-behind
git init --quiet nested
(cd nested && git -c user.name=n -c user.email=n commit --quiet --allow-empty -m inner)
"""


@dataclasses.dataclass
class Desk:
    """An operator's repository, and a controller that launches on it."""

    ground: Ground
    operator: Repo
    git: Git
    folder: Path
    count: int = 0

    def staging(self) -> Path:
        self.count += 1
        place = self.ground.root / "staging" / f"launch-{self.folder.name[-12:]}-{self.count}"
        place.mkdir(mode=0o700, parents=True)
        return place

    @property
    def candidates(self) -> Path:
        place = self.ground.root / "candidates"
        place.mkdir(mode=0o700, exist_ok=True)
        return place

    @contextlib.contextmanager
    def control(self, staging: Path) -> Iterator[Controller]:
        with self.ground.control() as controller:
            yield dataclasses.replace(controller, staging=staging, candidates=self.candidates)

    def prepared(self, staging: Path) -> PreparedSource:
        return prepare_source(
            self.git, find_origin(self.git, self.operator.path), self.operator.head, staging
        )

    def run(
        self, script: str, *arguments: str, route: SourceRoute = SourceRoute.BIND, **changes: Any
    ) -> tuple[LaunchRecord, str]:
        staging = self.staging()
        size = changes.pop("workspace_bytes", 1 << 33)
        prepared = changes.pop("prepared", None) or self.prepared(staging)
        source = LaunchSource(prepared=prepared, route=route, workspace_bytes=size)
        request = self.ground.request("sh", "-c", script, "sh", *arguments, source=source, **changes)
        said = bytearray()
        with self.control(staging) as controller:
            record = launch(
                controller,
                self.ground.admitted,
                request,
                Output(on_stdout=said.extend, on_stderr=said.extend),
            )
        return record, said.decode()

    def left(self) -> tuple[str, ...]:
        state = self.ground.state_id
        return (*self.ground.left(), *self.ground.engine.list_volumes(LABEL_STATE, state))


@pytest.fixture
def desk(ground: Ground, tmp_path: Path) -> Desk:
    return desk_at(ground, tmp_path)


def desk_at(ground: Ground, tmp_path: Path) -> Desk:
    """A new operator's repository in an empty folder."""
    operator = Repo.new(tmp_path / "operator")
    operator.commit({"readme": "one\n", "sub/a file": "a\n"}, "first")
    operator.commit({"sub/b": "b\n"}, "second")
    operator.write({"readme": "changed and not committed\n", "untracked": "x"})
    home = tmp_path / "git-home"
    home.mkdir(mode=0o700)
    return Desk(ground, operator, open_git(home, {"PATH": ENVIRONMENT["PATH"]}), tmp_path)


def bytes_below(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every entry: mode, size, and a digest of its content or target."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = os.readlink(path).encode() if path.is_symlink() else b""  # noqa: PTH115
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
        found[str(path.relative_to(folder))] = (
            status.st_mode,
            status.st_size if not path.is_dir() else 0,
            hashlib.sha256(content).hexdigest(),
        )
    return found


@pytest.mark.parametrize("route", list(SourceRoute))
def test_an_agents_commits_come_home(desk: Desk, route: SourceRoute) -> None:
    before, head = bytes_below(desk.operator.path), desk.operator.head
    record, said = desk.run(WORK, head, str(desk.ground.root), route=route)
    assert record.exit_code == 0, said
    (tip,) = said.split()
    seen = record.observed.space
    assert seen is not None
    assert seen.imported is not None
    assert (seen.status, seen.plan.route) == (ExportStatus.EXPORTED, route)
    assert seen.imported.commit.name == tip
    assert seen.imported.commit.parents == (head,)
    assert seen.plan.source.unseen.total == 2
    assert seen.unseen is not None
    assert sorted((one.kind.value, one.path) for one in seen.unseen.entries) == [
        ("modified", "readme"),
        ("nested-repository", "nested/"),
        ("untracked", "left-behind"),
    ]
    assert bytes_below(desk.operator.path) == before
    assert desk.left() == ()
    line = fetch_line(seen, desk.operator.path, record.launch_id)
    done = subprocess.run(
        shlex.split(line), env={**ENVIRONMENT, "HOME": str(desk.folder)}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert desk.operator.git("rev-parse", f"agent/{record.launch_id}") == tip
    assert desk.operator.git("show", f"{tip}:readme") == "one\ntwo"
    assert desk.operator.head == head


def test_no_commit_is_nothing_to_export(desk: Desk) -> None:
    record, _ = desk.run("echo left >behind; exit 3")
    seen = record.observed.space
    assert seen is not None
    assert (record.exit_code, seen.status, seen.imported) == (3, ExportStatus.NOTHING_NEW, None)
    assert seen.unseen is not None
    assert [one.path for one in seen.unseen.entries] == ["behind"]
    assert not any(path.name.startswith(record.launch_id) for path in desk.candidates.iterdir())


def test_review_fix_and_check_start_from_the_exact_candidate(desk: Desk) -> None:
    head = desk.operator.head
    first, said = desk.run(WORK, head, "/no/such/path")
    (tip,) = said.split()

    def candidate() -> PreparedSource:
        return prepare_candidate(desk.git, desk.candidates, first.launch_id, tip, desk.staging())

    look = (
        "git rev-parse HEAD; cat check.sh >/dev/null; test ! -e left-behind; git commit -q --allow-empty -m x"
    )
    record, said = desk.run(look, launch_class=LaunchClass.REVIEW, prepared=candidate())
    assert said.split() == [tip]
    assert record.observed.space is not None
    assert record.observed.space.status is ExportStatus.NOT_ALLOWED
    fix = 'test "$(git rev-parse HEAD)" = "$1"; echo three >>readme; git commit -qam fix; git rev-parse HEAD'
    record, said = desk.run(fix, tip, launch_class=LaunchClass.FIX, prepared=candidate())
    assert record.observed.space is not None
    assert record.observed.space.imported is not None
    assert record.observed.space.imported.commit.parents == (tip,)
    check = "test ! -e .git; test ! -w /source; ./check.sh; echo made >made; cat /source/readme"
    record, said = desk.run(check, launch_class=LaunchClass.EXPORT_COMMAND, prepared=candidate())
    assert said == "checked 2\none\ntwo\n"
    assert record.observed.space is not None
    assert record.observed.space.status is ExportStatus.NOT_ALLOWED
    assert desk.left() == ()


@pytest.mark.parametrize("more", ["", "update = !$c"], ids=["taken", "refused"])
def test_traps_of_an_agent_never_run_on_the_host(desk: Desk, more: str) -> None:
    """The program that every trap names exists on the host alone, where it must not run."""
    ran, program = desk.folder / "ran", desk.folder / "canary"
    program.write_text(f"#!/bin/sh\necho x >>{shlex.quote(str(ran))}\ncat\n")
    program.chmod(0o755)
    traps = r"""
    c=$1
    git commit -q --allow-empty -m before
    printf '* filter=c diff=c merge=c ident eol=crlf export-ignore\n' >.gitattributes
    printf '[submodule "s"]\n\tpath = s\n\turl = ext::%s\n' "$c" >.gitmodules
    printf '%s\n' "MORE" >>.gitmodules
    ln -s /etc/passwd outside; ln -s ../../../.. up; mkdir -p hooks refs objects
    printf 'ref: refs/heads/x\n' >HEAD; printf '[core]\n\tfsmonitor = %s\n\tbare = true\n' "$c" >config
    printf '%s\n' '#!/bin/sh' "$c" >hooks/post-checkout; : >objects/x; : >refs/x; chmod +x hooks/*
    printf x >"$(printf 'odd \n\303\251 "name"\\')"
    git add --all; git commit -qm traps; git rev-parse HEAD
    cat >>.git/config <<END
[core]
	fsmonitor = $c
	hooksPath = .git/hooks
	sshCommand = $c
	pager = $c
	editor = $c
	attributesFile = /workspace/.gitattributes
[filter "c"]
	clean = $c
	smudge = $c
	process = $c
	required = true
[diff "c"]
	command = $c
	textconv = $c
[uploadpack]
	packObjectsHook = $c
[alias]
	status = !$c
[include]
	path = $c
END
    for h in pre-commit post-checkout post-index-change reference-transaction pre-receive update; do
        mkdir -p .git/hooks; printf '%s\n' '#!/bin/sh' "$c" >.git/hooks/$h
        chmod +x .git/hooks/$h
    done
    printf '%s\n' /etc "$c" >>.git/objects/info/alternates 2>/dev/null || true
    """
    before = bytes_below(desk.operator.path)
    if more:
        with pytest.raises(CandidateRefused) as caught:
            desk.run(traps.replace("MORE", more), str(program))
        assert caught.value.reason == CandidateReason.PACK
        with open_journal(desk.ground) as journal:
            (last,) = launched(journal, f"real-{desk.ground.count}")
        assert last.record is not None
        assert last.record["ending"] == "completed"
        assert last.record["export"]["status"] == "refused"  # type: ignore[call-overload,index]
        assert not ran.exists()
        assert desk.left() == ()
        return
    record, said = desk.run(traps.replace("MORE", ""), str(program))
    seen = record.observed.space
    assert seen is not None
    assert seen.imported is not None, said
    assert seen.imported.commit.name in said
    again = prepare_candidate(
        desk.git, desk.candidates, record.launch_id, seen.imported.commit.name, desk.staging()
    )
    assert set(again.tree.links_as_files) == {b"outside", b"up"}
    assert not ran.exists()
    assert bytes_below(desk.operator.path) == before


def test_a_workspace_beyond_its_bound_ends_the_launch_and_its_commits_come_home(desk: Desk) -> None:
    grow = "git commit -q --allow-empty -m kept; head -c 60000000 /dev/zero >big; echo big; sleep 100"
    record, _ = desk.run(grow, workspace_bytes=40_000_000)
    assert record.observed.ending is LaunchEnding.WORKSPACE_FULL
    assert record.observed.reason == "workspace-full"
    assert record.exit_code is None
    assert record.observed.space is not None
    assert record.observed.space.status is ExportStatus.EXPORTED
    assert FLOOR > 0
    assert desk.left() == ()


def killed_with_files(
    desk: Desk, staging: Path, request: LaunchRequest, boundary: Boundary, when: When
) -> None:
    """A launch in a process that is killed there."""
    child = os.fork()
    if child == 0:
        try:
            with desk.control(staging) as controller:
                dying: Any = DyingJournal(controller.journal, boundary, when)
                launch(dataclasses.replace(controller, journal=dying), desk.ground.admitted, request)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def recovered_once(desk: Desk, launch_id: str, boundary: Boundary, when: When) -> None:
    """One recovery removes container, volumes and candidate of what died there; a second changes nothing."""
    expected, ground = KILLS[boundary, when], desk.ground
    containers, volumes = ground.left(), ground.engine.list_volumes(LABEL_STATE, ground.state_id)
    assert len(containers) == expected.container
    assert bool(volumes) is (boundary in HOLDING_VOLUMES)
    with open_journal(ground) as journal:
        first, second = (
            recover(
                ground.engine,
                journal,
                ground.root / "leases",
                ground.state_id,
                lambda: datetime.now(UTC),
                candidates=desk.candidates,
            )
            for _ in range(2)
        )
        assert tuple(one.container_id for one in first.remove) == containers
        assert {one.container_id.removeprefix("volume/") for one in first.volumes} == set(volumes)
        assert first.close == ((launch_id,) if expected.closes else ())
        assert second.nothing
        recorded = (boundary, when) == (Boundary.RECORDED, When.AFTER)
        assert (journal.bundle(launch_id) is not None) is recorded
    assert desk.left() == ()


@pytest.mark.parametrize(("boundary", "when"), OF_FILES)
def test_sigkill_where_files_are_leaves_nothing_after_one_recovery(
    desk: Desk, boundary: Boundary, when: When
) -> None:
    staging = desk.staging()
    route = SourceRoute.COPY_IN if boundary is Boundary.PROVIDED else SourceRoute.BIND
    source = LaunchSource(prepared=desk.prepared(staging), route=route)
    request = desk.ground.request("sh", "-c", "git commit -q --allow-empty -m kept", source=source)
    killed_with_files(desk, staging, request, boundary, when)
    recovered_once(desk, f"{request.run_id}.1", boundary, when)
    assert not (desk.candidates / f"{request.run_id}.1.git").exists()


@pytest.fixture(scope="module")
def accepted(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> tuple[Desk, str, str]:
    """A candidate that a launch exported: its desk, its launch, its commit."""
    desk = desk_at(ground, tmp_path_factory.mktemp("accepted"))
    record, said = desk.run("echo two >>readme; git commit -qam kept; git rev-parse HEAD")
    return desk, record.launch_id, said.strip()


@pytest.mark.parametrize(
    ("kind", "boundary", "when"),
    # A review and a check cross what a fix does, but for the way home: they are many, and run with --long.
    [
        pytest.param(*one, marks=[] if one[0] is LaunchClass.FIX else pytest.mark.long)
        for one in OF_A_CONTINUATION
    ],
)
def test_sigkill_of_a_review_fix_or_check_leaves_the_candidate_that_it_began_with(
    accepted: tuple[Desk, str, str], kind: LaunchClass, boundary: Boundary, when: When
) -> None:
    """Nothing of it is left but its record, if it has one, and the accepted candidate is what it was."""
    desk, launch_id, tip = accepted
    place = desk.candidates / f"{launch_id}.git"
    before, staging = bytes_below(place), desk.staging()
    prepared = prepare_candidate(desk.git, desk.candidates, launch_id, tip, staging)
    script = "true" if kind is LaunchClass.EXPORT_COMMAND else "git commit -q --allow-empty -m more"
    source = LaunchSource(prepared=prepared)
    request = desk.ground.request("sh", "-c", script, source=source, launch_class=kind)
    killed_with_files(desk, staging, request, boundary, when)
    recovered_once(desk, f"{request.run_id}.1", boundary, when)
    assert bytes_below(place) == before
    own = desk.candidates / f"{request.run_id}.1.git"
    assert own.exists() is (kind is LaunchClass.FIX and (boundary, when) == (Boundary.RECORDED, When.AFTER))
    again = prepare_candidate(desk.git, desk.candidates, launch_id, tip, desk.staging())
    assert again.commit == tip
