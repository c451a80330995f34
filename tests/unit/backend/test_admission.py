"""Admission: each reason refuses by name; development and acceptances let pass exactly what they may."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from backend.admission import AdmittedImage, admit, assess
from backend.containers import EngineFacts
from backend.host import engine_uid, readable_keys
from backend.probe import HostCheck, HostProbe, ProbeLine, ProbeName, ProbeState
from images.errors import ExitCode, LaunchReason, LaunchRefused
from images.oci import Platform
from provenance.checks import CheckId
from provenance.policy import Acceptance, Mode, Policy
from provenance.verify import Purpose, VerifiedImage
from tests.fakes.admitted import probe_of
from tests.fakes.engine import DOCKER_FACTS
from tests.fakes.locks import AMD64


def policy_with(verified: VerifiedImage, *accepted: LaunchReason, mode: Mode = Mode.REQUIRED) -> Policy:
    accept = tuple(Acceptance(what, "one user") for what in accepted)
    return dataclasses.replace(verified.policy, accept=accept, mode=mode)


def decide(
    verified: VerifiedImage,
    policy: Policy | None = None,
    probe: HostProbe | None = None,
    *,
    facts: EngineFacts = DOCKER_FACTS,
    host: tuple[ProbeLine, ...] = (),
    platform: Platform = AMD64,
) -> AdmittedImage:
    return admit(
        verified,
        policy or verified.policy,
        probe or probe_of(),
        facts=facts,
        platform=platform,
        host=host,
    )


def refused(reason: LaunchReason, verified: VerifiedImage, policy: Policy, **given: object) -> LaunchRefused:
    with pytest.raises(LaunchRefused) as caught:
        decide(verified, policy, **given)  # type: ignore[arg-type]
    assert caught.value.reason == reason
    assert caught.value.code is ExitCode.REFUSED
    assert caught.value.hint
    return caught.value


def test_a_proved_image_on_a_proved_host(verified: VerifiedImage) -> None:
    admitted = decide(verified)
    assert admitted.mode is Mode.REQUIRED
    assert admitted.accepted == ()
    assert admitted.notes == ()
    assert admitted.limits_enforced
    assert admitted.agents == (("claude-code", "2.1.328"), ("pi", "0.73.1"))


BOTH = [Mode.REQUIRED, Mode.DEVELOPMENT]


@pytest.mark.parametrize("mode", BOTH)
def test_no_mode_skips_the_summary(verified: VerifiedImage, mode: Mode) -> None:
    policy = policy_with(verified, mode=mode)
    refused(LaunchReason.NOT_VERIFIED, dataclasses.replace(verified, summary=None), policy)
    inspected = dataclasses.replace(verified, purpose=Purpose.INSPECTION)
    refused(LaunchReason.NOT_VERIFIED, inspected, policy)


@pytest.mark.parametrize("mode", BOTH)
def test_verified_under_another_policy(verified: VerifiedImage, mode: Mode) -> None:
    from images.digests import Digest  # noqa: PLC0415

    other = dataclasses.replace(policy_with(verified, mode=mode), digest=Digest.of(b"another"))
    refused(LaunchReason.POLICY, verified, other)


def without(verified: VerifiedImage, check: CheckId) -> VerifiedImage:
    return dataclasses.replace(verified, checks=tuple(one for one in verified.checks if one.id is not check))


def unpinned(verified: VerifiedImage) -> VerifiedImage:
    base = dataclasses.replace(verified.lock.base, pinned=False)
    return dataclasses.replace(verified, lock=dataclasses.replace(verified.lock, base=base))


def test_no_expectation(verified: VerifiedImage) -> None:
    image = without(verified, CheckId.PARAMETERS)
    refused(LaunchReason.NO_EXPECTATION, image, policy_with(verified))
    admitted = decide(image, policy_with(verified, mode=Mode.DEVELOPMENT))
    assert admitted.notes[0].startswith("no-expectation: ")


def test_an_unpinned_base(verified: VerifiedImage) -> None:
    refused(LaunchReason.UNPINNED_BASE, unpinned(verified), policy_with(verified))
    admitted = decide(unpinned(verified), policy_with(verified, mode=Mode.DEVELOPMENT))
    assert admitted.notes[0].startswith("unpinned-base: ")


@pytest.mark.parametrize("mode", BOTH)
def test_another_platform(verified: VerifiedImage, mode: Mode) -> None:
    refused(
        LaunchReason.PLATFORM,
        verified,
        policy_with(verified, mode=mode),
        platform=Platform.parse("linux/arm64"),
    )


def test_another_engine_than_the_probed_one(verified: VerifiedImage) -> None:
    facts = dataclasses.replace(DOCKER_FACTS, endpoint="unix:///elsewhere.sock")
    refused(LaunchReason.ENGINE_IDENTITY, verified, policy_with(verified), facts=facts)


# Which answers of a probe development mode lives with; a name missing here is a test that fails.
DEVELOPMENT_LIVES_WITH = {ProbeName.LOCAL, ProbeName.ROOTLESS, ProbeName.USER_NAMESPACE}


@pytest.mark.parametrize("name", list(ProbeName))
def test_each_probe_that_does_not_hold(verified: VerifiedImage, name: ProbeName) -> None:
    probe = probe_of(name)
    reason = probe.line(name).reason
    refused(reason, verified, policy_with(verified), probe=probe)
    development = policy_with(verified, mode=Mode.DEVELOPMENT)
    if name in DEVELOPMENT_LIVES_WITH:
        assert decide(verified, development, probe).notes[0].startswith(f"{reason.value}: {name.value}")
    else:
        refused(reason, verified, development, probe=probe)


LIMIT_LINES = (ProbeName.MEMORY_LIMIT, ProbeName.PIDS_LIMIT, ProbeName.CPU_LIMIT)


def limits_missing() -> HostProbe:
    probe = probe_of(*LIMIT_LINES)
    lines = tuple(
        dataclasses.replace(line, state=ProbeState.ACCEPTABLE) if line.name in LIMIT_LINES else line
        for line in probe.lines
    )
    return dataclasses.replace(probe, lines=lines)


@pytest.mark.parametrize("mode", BOTH)
def test_limits_by_name_only(verified: VerifiedImage, mode: Mode) -> None:
    policy = policy_with(verified, mode=mode)
    refused(LaunchReason.LIMITS_NOT_ENFORCED, verified, policy, probe=limits_missing())
    other = policy_with(verified, LaunchReason.KEYS_READABLE, mode=mode)
    refused(LaunchReason.LIMITS_NOT_ENFORCED, verified, other, probe=limits_missing())
    accepting = policy_with(verified, LaunchReason.LIMITS_NOT_ENFORCED, mode=mode)
    admitted = decide(verified, accepting, limits_missing())
    assert [one.what for one in admitted.accepted] == [LaunchReason.LIMITS_NOT_ENFORCED]
    assert not admitted.limits_enforced


def test_an_acceptance_that_is_not_needed_is_not_recorded(verified: VerifiedImage) -> None:
    admitted = decide(verified, policy_with(verified, LaunchReason.LIMITS_NOT_ENFORCED))
    assert admitted.accepted == ()


def test_an_acceptance_never_covers_proof_or_engine(verified: VerifiedImage) -> None:
    """Even if a policy object carried such a name, which its parser refuses."""
    everything = policy_with(verified, *LaunchReason)
    refused(LaunchReason.NOT_VERIFIED, dataclasses.replace(verified, summary=None), everything)
    refused(LaunchReason.DEATH_WATCH, verified, everything, probe=probe_of(ProbeName.DEATH_WATCH))
    refused(LaunchReason.ENGINE_MODE, verified, everything, probe=probe_of(ProbeName.ROOTLESS))
    refused(LaunchReason.STORAGE_DRIVER, verified, everything, probe=probe_of(ProbeName.STORAGE))


def told(name: HostCheck, state: ProbeState, reason: LaunchReason, detail: str = "x") -> ProbeLine:
    return ProbeLine(name=name, state=state, detail=detail, remedy="do something", reason=reason)


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize("state", list(ProbeState))
def test_what_the_host_lacks_is_refused_in_every_mode_unless_it_is_only_noted(
    verified: VerifiedImage, mode: Mode, state: ProbeState
) -> None:
    policy = policy_with(verified, mode=mode)
    reasons = (LaunchReason.SELINUX, LaunchReason.SUBORDINATE_IDS, LaunchReason.HOST_ROOM)
    for reason in reasons:
        host = (told(HostCheck.DISK, state, reason),)
        if state in (ProbeState.HELD, ProbeState.NOTED):
            decide(verified, policy, host=host)
        else:
            refused(reason, verified, policy, host=host)


def test_keys_that_the_engine_can_read(verified: VerifiedImage) -> None:
    host = (told(HostCheck.KEYS, ProbeState.ACCEPTABLE, LaunchReason.KEYS_READABLE, "/keys/builder.key"),)
    error = refused(LaunchReason.KEYS_READABLE, verified, policy_with(verified), host=host)
    assert "builder.key" in error.what
    accepting = policy_with(verified, LaunchReason.KEYS_READABLE)
    assert decide(verified, accepting, host=host).accepted[0].what is LaunchReason.KEYS_READABLE
    noted = decide(verified, policy_with(verified, mode=Mode.DEVELOPMENT), host=host)
    assert noted.notes[0].startswith("keys-readable-by-engine: ")


def test_all_reasons_are_named_together(verified: VerifiedImage) -> None:
    probe = probe_of(ProbeName.ROOTLESS, ProbeName.STORAGE)
    error = refused(LaunchReason.UNPINNED_BASE, unpinned(verified), policy_with(verified), probe=probe)
    assert "2 more against it: engine-mode, storage-driver" in error.what
    found = assess(unpinned(verified), verified.policy, probe, facts=DOCKER_FACTS, platform=AMD64, host=())
    assert [one.reason for one in found] == [
        LaunchReason.UNPINNED_BASE,
        LaunchReason.ENGINE_MODE,
        LaunchReason.STORAGE_DRIVER,
    ]


@pytest.mark.parametrize(
    ("mode", "uid_offset", "engine_is_root", "readable"),
    [
        (0o600, 0, False, True),  # the engine runs as the owner
        (0o600, 1, False, False),
        (0o640, 1, False, True),
        (0o604, 1, False, True),
        (0o600, 1, True, True),
        (0o000, 0, False, False),
    ],
)
def test_which_keys_are_readable(
    tmp_path: Path, mode: int, uid_offset: int, engine_is_root: bool, readable: bool
) -> None:
    key = tmp_path / "builder.key"
    key.write_text("dummy")
    key.chmod(mode)
    owner = key.stat().st_uid
    uid = 0 if engine_is_root else owner + uid_offset if owner else 1234 + uid_offset
    if owner == 0 and not engine_is_root and uid_offset == 0:
        pytest.importorskip("os").chown(key, 1234, 1234)
    found = readable_keys([key, tmp_path / "absent.key"], engine_uid=uid)
    assert found == ((key,) if readable else ())


def test_whose_rights_an_engine_has(tmp_path: Path) -> None:
    socket = tmp_path / "docker.sock"
    socket.touch()
    facts = dataclasses.replace(DOCKER_FACTS, endpoint=f"unix://{socket}")
    assert engine_uid(facts) == socket.stat().st_uid
    assert engine_uid(dataclasses.replace(facts, rootless=False)) == 0
