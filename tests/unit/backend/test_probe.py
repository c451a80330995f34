"""Each answer is judged alone; the whole probe runs on the scripted engine; what is kept is read strictly."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from backend.commands import Outcome
from backend.containers import (
    ContainerPlan,
    EngineFacts,
    ExecPlan,
    ImageIdKind,
    LoadedImage,
    ReadOnlyBind,
)
from backend.death_watch import Watched, hostile_plan
from backend.inside import InsideFacts, inside_argv, read_inside
from backend.probe import (
    LIMITS,
    HostProbe,
    ProbeLine,
    ProbeName,
    ProbeState,
    judge_engine,
    judge_inside,
    judge_shared,
    judge_watch,
    probe_host,
    probe_plan,
)
from backend.probe_cache import keep, probe, read_kept
from backend.shared_files import planted, why_not_shared
from images.errors import HostError, LaunchReason
from images.oci import OciImage
from provenance.layout import open_image
from tests.fakes.engine import DOCKER_FACTS, FakeEngine, said
from tests.fakes.inside import inside_answer
from tests.fakes.layouts import make_image

INIT = "/usr/bin/catatonit"
LABELS = (("agent-image-builder.owner", "f" * 32),)


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    folder = tmp_path / "fake"
    folder.mkdir()
    return FakeEngine(folder)


@pytest.fixture
def base(tmp_path: Path) -> OciImage:
    return open_image(tmp_path / "layout", make_image(tmp_path / "layout"))


def inside(base: OciImage, **changes: str) -> InsideFacts:
    loaded = LoadedImage(image=base, id=base.settings.digest, id_kind=ImageIdKind.CONFIG)
    plan = probe_plan(loaded, init=INIT, token="0" * 16, labels=(), name="x", seconds=1)
    look = ExecPlan(argv=inside_argv("nonce", "sh", ()), user=(1000, 1000), working_dir="/")
    named = {name.replace("_", "-"): text for name, text in changes.items()}
    return read_inside(inside_answer(plan, look, "docker", named), "nonce")


def line(lines: tuple[ProbeLine, ...], name: ProbeName) -> ProbeLine:
    return next(item for item in lines if item.name is name)


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({"version": "19.03.13"}, ProbeName.IDENTITY, LaunchReason.ENGINE_IDENTITY),
        ({"version": "unknown"}, ProbeName.IDENTITY, LaunchReason.ENGINE_IDENTITY),
        (
            {"product": "podman", "version": "3.4.4", "api_version": "4.3.1"},
            ProbeName.IDENTITY,
            LaunchReason.ENGINE_IDENTITY,
        ),
        ({"product": "containerd"}, ProbeName.IDENTITY, LaunchReason.ENGINE_IDENTITY),
        ({"api_version": "1.40"}, ProbeName.API, LaunchReason.ENGINE_IDENTITY),
        ({"api_version": ""}, ProbeName.API, LaunchReason.ENGINE_IDENTITY),
        ({"remote": True}, ProbeName.LOCAL, LaunchReason.ENGINE_MODE),
        ({"rootless": False}, ProbeName.ROOTLESS, LaunchReason.ENGINE_MODE),
        ({"storage_driver": "vfs"}, ProbeName.STORAGE, LaunchReason.STORAGE_DRIVER),
        ({"storage_driver": ""}, ProbeName.STORAGE, LaunchReason.STORAGE_DRIVER),
    ],
)
def test_each_fact_that_required_mode_refuses(
    changes: dict[str, object], name: ProbeName, reason: LaunchReason
) -> None:
    facts: EngineFacts = replace(DOCKER_FACTS, **changes)  # type: ignore[arg-type]
    lines = judge_engine(facts, ImageIdKind.CONFIG)
    assert [item.name for item in lines if item.state is not ProbeState.HELD] == [name]
    refused = line(lines, name)
    assert (refused.state, refused.reason) == (ProbeState.NOT_HELD, reason)
    assert refused.remedy


def test_a_good_engine_and_inside_hold(base: OciImage) -> None:
    lines = (*judge_engine(DOCKER_FACTS, ImageIdKind.MANIFEST), *judge_inside(inside(base), DOCKER_FACTS))
    assert {item.state for item in lines} == {ProbeState.HELD}
    assert "manifest" in line(lines, ProbeName.IMAGE_ID).detail


STATUS = (
    "Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\nGroups:\t\n"
    "CapInh:\t0\nCapPrm:\t0\nCapEff:\t0\nCapBnd:\t{bounding}\nCapAmb:\t0\nNoNewPrivs:\t{privs}\nSeccomp:\t{seccomp}\n"
)


def status(uid: int = 1000, bounding: str = "0", privs: int = 1, seccomp: int = 2) -> str:
    return STATUS.format(uid=uid, bounding=bounding, privs=privs, seccomp=seccomp)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"uid_map": "0 0 4294967295"}, ProbeName.USER_NAMESPACE),
        ({"uid_map": ""}, ProbeName.USER_NAMESPACE),
        ({"status": status(bounding="a80425fb")}, ProbeName.CAPABILITIES),
        ({"init_status": status(997, bounding="1")}, ProbeName.CAPABILITIES),
        ({"status": status(privs=0)}, ProbeName.NO_NEW_PRIVILEGES),
        ({"init_status": status(997, privs=0)}, ProbeName.NO_NEW_PRIVILEGES),
        ({"status": status(seccomp=0)}, ProbeName.SECCOMP),
        ({"interfaces": "lo\neth0"}, ProbeName.NETWORK_NONE),
        ({"interfaces": ""}, ProbeName.NETWORK_NONE),
    ],
)
def test_each_inside_answer_that_is_refused(changes: dict[str, str], name: ProbeName, base: OciImage) -> None:
    lines = judge_inside(inside(base, **changes), DOCKER_FACTS)
    assert [item.name for item in lines if item.state is not ProbeState.HELD] == [name]
    assert line(lines, name).state is ProbeState.NOT_HELD


@pytest.mark.parametrize(
    "limits",
    [
        "memory.max max\npids.max max\ncpu.max max 100000",
        "",
        "memory/memory.limit_in_bytes 9223372036854771712\ncpu/cpu.cfs_quota_us -1\n"
        "cpu/cpu.cfs_period_us 100000",
        "memory.max 1073741824\npids.max 4096\ncpu.max 200000 100000",
    ],
)
def test_limits_that_are_not_those_asked_for_may_be_accepted_by_name_only(
    limits: str, base: OciImage
) -> None:
    lines = judge_inside(inside(base, limits=limits), DOCKER_FACTS)
    for name in (ProbeName.MEMORY_LIMIT, ProbeName.PIDS_LIMIT, ProbeName.CPU_LIMIT):
        found = line(lines, name)
        assert (found.state, found.reason) == (ProbeState.ACCEPTABLE, LaunchReason.LIMITS_NOT_ENFORCED)
        assert "limits-not-enforced" in found.remedy


def test_cgroup_v1_limits_count_too(base: OciImage) -> None:
    limits = (
        f"memory/memory.limit_in_bytes {LIMITS.memory}\npids/pids.max {LIMITS.pids}\n"
        "cpu/cpu.cfs_quota_us 73000\ncpu/cpu.cfs_period_us 100000"
    )
    lines = judge_inside(inside(base, limits=limits), DOCKER_FACTS)
    assert {item.state for item in lines} == {ProbeState.HELD}


@pytest.mark.parametrize(
    ("watched", "state"),
    [
        (Watched(gone_after=0.1, harm=()), ProbeState.HELD),
        (Watched(gone_after=None, harm=()), ProbeState.NOT_HELD),
        (Watched(gone_after=0.1, harm=("stopped 7",)), ProbeState.NOT_HELD),
    ],
)
def test_a_container_that_outlives_its_bound_or_is_harmed_is_refused(
    watched: Watched, state: ProbeState
) -> None:
    found = judge_watch(ProbeName.DEATH_WATCH, "controller killed", watched, 5.0)
    assert (found.state, found.reason) == (state, LaunchReason.DEATH_WATCH)


def test_the_whole_probe_on_a_good_engine(engine: FakeEngine, base: OciImage, tmp_path: Path) -> None:
    engine.ends_after = 0.5
    found = probe_host(engine, base, init=INIT, staging=tmp_path, labels=LABELS)
    assert tuple(item.name for item in found.lines) == tuple(ProbeName)
    assert found.not_held == ()
    assert (found.limits_enforced, found.id_kind, found.base) == (True, ImageIdKind.CONFIG, base.digest)
    assert engine.containers == {}


def test_a_container_that_ignores_its_controller_is_found_out(
    engine: FakeEngine, base: OciImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.probe.GONE_SECONDS", 0.3)
    monkeypatch.setattr("backend.probe.DEADLINE_BOUND", 0.3)
    engine.client_script = 'trap "" TERM; : >"$1"; cat; sleep 2'
    found = probe_host(engine, base, init=INIT, staging=tmp_path, labels=LABELS)
    assert {item.name for item in found.not_held} == {
        ProbeName.DEATH_WATCH,
        ProbeName.CLIENT_DEATH,
        ProbeName.DEADLINE,
    }
    assert engine.containers == {}


def test_an_agent_that_reaches_the_watch_is_told(engine: FakeEngine, base: OciImage, tmp_path: Path) -> None:
    engine.ends_after = 0.5
    engine.exec_script = "printf 'stopped 1\\nhostile-agent-ready\\n'; sleep 60"
    found = probe_host(engine, base, init=INIT, staging=tmp_path, labels=LABELS)
    assert not found.held(ProbeName.DEATH_WATCH)
    assert "stopped 1" in found.line(ProbeName.DEATH_WATCH).detail


def test_an_attack_that_never_starts_is_an_error_and_not_a_proof(
    engine: FakeEngine, base: OciImage, tmp_path: Path
) -> None:
    engine.exec_script = "exit 1"
    with pytest.raises(HostError, match="did not start"):
        probe_host(engine, base, init=INIT, staging=tmp_path, labels=LABELS)
    assert engine.containers == {}


def test_a_remote_engine_is_never_given_a_path(engine: FakeEngine, base: OciImage, tmp_path: Path) -> None:
    engine.told = replace(DOCKER_FACTS, remote=True)
    engine.ends_after = 0.5
    bound: list[ReadOnlyBind] = []
    create = engine.create

    def watching(plan: ContainerPlan) -> str:
        bound.extend(plan.read_only_binds)
        return create(plan)

    engine.create = watching  # type: ignore[method-assign]
    found = probe_host(engine, base, init=INIT, staging=tmp_path, labels=LABELS)
    assert found.line(ProbeName.SHARED_FILES).state is ProbeState.NOTED
    assert bound == []
    assert {line.name for line in found.not_held} == {ProbeName.LOCAL}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (said(exit_code=81, stderr=b"cat: No such file"), "not the one that was written"),
        (said(b"another nonce\n/source ro\n"), "not the one that was written"),
        (said(b"NONCE\n", exit_code=82), "could be written to"),
        (said(b"NONCE\n/source rw,relatime\n"), "not read-only"),
        (said(b"NONCE\n/source ro\n/source/below rw\n"), "other mounts"),
        (said(b"NONCE\n"), "other mounts"),
    ],
)
def test_files_that_are_not_shared_are_copied_and_no_launch_is_refused(
    answer: Outcome, told: str, engine: FakeEngine, base: OciImage, tmp_path: Path
) -> None:
    loaded = engine.load(base, tmp_path)
    with planted(tmp_path) as found:

        def shared(_: ContainerPlan) -> Outcome:
            return replace(answer, stdout=answer.stdout.replace(b"NONCE", found.nonce.encode()))

        engine._shared = shared  # type: ignore[method-assign]
        plan = probe_plan(loaded, init=INIT, token="0" * 16, labels=LABELS, name="shared", seconds=9)
        why = why_not_shared(engine, replace(plan, read_only_binds=(found.bind,)), found)
    line_ = judge_shared(DOCKER_FACTS, why)
    assert told in line_.detail
    assert line_.state is ProbeState.NOTED
    assert engine.containers == {}


def test_an_engine_that_refuses_the_bind_gets_a_copy(
    engine: FakeEngine, base: OciImage, tmp_path: Path
) -> None:
    loaded = engine.load(base, tmp_path)
    engine.fails["create"] = HostError("bind source path does not exist")
    with planted(tmp_path) as found:
        plan = probe_plan(loaded, init=INIT, token="0" * 16, labels=LABELS, name="shared", seconds=9)
        assert "does not exist" in why_not_shared(engine, replace(plan, read_only_binds=(found.bind,)), found)
    assert engine.containers == {}


def test_the_attack_is_the_agent_s() -> None:
    assert hostile_plan().user == (1000, 1000)
    for weapon in ("kill -STOP", "kill -KILL", "/proc/1/fd/", "setsid", "trap ''"):
        assert weapon in hostile_plan().argv[2]


@pytest.fixture
def good(engine: FakeEngine, base: OciImage) -> HostProbe:
    lines = (*judge_engine(DOCKER_FACTS, ImageIdKind.CONFIG), *judge_inside(inside(base), DOCKER_FACTS))
    names = (ProbeName.DEATH_WATCH, ProbeName.CLIENT_DEATH, ProbeName.DEADLINE)
    watched = Watched(gone_after=0.1, harm=())
    shared = judge_shared(DOCKER_FACTS, "")
    return HostProbe(
        boot_id="b" * 36,
        base=base.digest,
        facts=DOCKER_FACTS,
        id_kind=ImageIdKind.CONFIG,
        uid_map=((0, 100000, 65536),),
        lines=(*lines, *(judge_watch(name, "x", watched, 5.0) for name in names), shared),
    )


def test_what_is_kept_is_read_back_equal(good: HostProbe, tmp_path: Path) -> None:
    cache = tmp_path / "probe.json"
    assert read_kept(cache) is None
    keep(good, cache)
    assert read_kept(cache) == good
    assert cache.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(version=2),
        lambda document: document.pop("boot_id"),
        lambda document: document.update(more=1),
        lambda document: document["facts"].update(rootless="yes"),
        lambda document: document["lines"].pop(),
        lambda document: document["lines"].reverse(),
        lambda document: document["lines"][0].update(state="fine"),
        lambda document: document["lines"][0].update(extra=1),
        lambda document: document.update(base="sha256:x"),
        lambda document: document.update(id_kind="index"),
    ],
)
def test_a_kept_file_that_is_not_as_written_is_asked_anew(
    change: object, good: HostProbe, tmp_path: Path
) -> None:
    cache = tmp_path / "probe.json"
    keep(good, cache)
    document = json.loads(cache.read_text())
    assert callable(change)
    change(document)
    cache.write_text(json.dumps(document))
    assert read_kept(cache) is None


def test_a_kept_file_that_others_can_write_or_a_link_is_passed_over(good: HostProbe, tmp_path: Path) -> None:
    cache = tmp_path / "probe.json"
    keep(good, cache)
    cache.chmod(0o666)
    assert read_kept(cache) is None
    cache.chmod(0o600)
    link = tmp_path / "link.json"
    link.symlink_to(cache)
    assert read_kept(link) is None
    for junk in (b"", b"\xff", b"[]", b'{"a":1,"a":1}', b"{" * 100_000):
        cache.write_bytes(junk)
        assert read_kept(cache) is None


def test_the_answers_hold_for_one_boot_engine_and_base(
    engine: FakeEngine, base: OciImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "probe.json"
    engine.ends_after = 0.5

    looked: list[OciImage] = []

    def find_init() -> str:
        looked.append(base)
        return INIT

    def ask() -> HostProbe:
        return probe(engine, base, find_init=find_init, staging=tmp_path, labels=LABELS, cache=cache)

    first = ask()
    assert looked == [base]
    engine.calls.clear()
    assert ask() == first
    assert "create" not in engine.calls
    assert looked == [base]  # a whole base is not read for what is known
    for change in ("engine", "boot", "base"):
        engine.calls.clear()
        if change == "engine":
            engine.told = replace(engine.told, version="24.0.7")
        elif change == "boot":
            monkeypatch.setattr("backend.probe_cache.boot_id", lambda: "another")
            monkeypatch.setattr("backend.probe.boot_id", lambda: "another")
        else:
            other = tmp_path / "other"
            base = open_image(other, make_image(other, ({"x": b"y"},)))
        ask()
        assert "create" in engine.calls
