"""Detection: the pinned version, offline and as the agent, or a failed build that names its cause."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from backend.commands import Ending, Outcome
from backend.detect import DETECT_LIMITS, MAX_OUTPUT, SKIP_PERMISSIONS, detect
from images.config import AgentName
from images.digests import Digest
from images.errors import BuildFailed, ExitCode, HostError
from provenance.scan.accept import accept
from provenance.statements import DetectedImage
from provenance.verify import VerifiedImage
from tests.fakes.admitted import Bench
from tests.fakes.engine import said
from tests.fakes.proved import report_on

PINS = ((AgentName.CLAUDE_CODE, "2.1.328"), (AgentName.OPENCODE, "1.18.33"), (AgentName.PI, "0.73.1"))
CLAUDE = ("/usr/local/bin/claude", "--version")
OPENCODE = ("/usr/local/bin/opencode", "--version")
PI = ("/usr/local/bin/pi", "--version")
REFUSAL = b"--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons\n"


@pytest.fixture
def scripted(at: Bench) -> Bench:
    at.engine.answers[CLAUDE] = said(b"2.1.328 (Claude Code)\n")
    at.engine.answers[OPENCODE] = said(b"1.18.33\n")
    at.engine.answers[PI] = said(b"0.73.1\n")
    at.engine.answers[SKIP_PERMISSIONS] = lambda _plan, command, _data: (
        said(stderr=REFUSAL, exit_code=1)
        if command.user == (0, 0)
        else said(b"Not logged in \xc2\xb7 Please run /login\n", exit_code=1)
    )
    return at


def run(at: Bench, verified: VerifiedImage, tmp_path: Path) -> DetectedImage:
    clean = accept(report_on(verified.image), verified.image)
    return detect(at.engine, clean, PINS, owner=at.owner, staging=tmp_path, limits=DETECT_LIMITS)


def test_three_pinned_versions(scripted: Bench, verified: VerifiedImage, tmp_path: Path) -> None:
    found = run(scripted, verified, tmp_path)
    assert [(one.name, one.pinned, one.reported, one.exit_code) for one in found.agents] == [
        ("claude-code", "2.1.328", "2.1.328", 0),
        ("opencode", "1.18.33", "1.18.33", 0),
        ("pi", "0.73.1", "0.73.1", 0),
    ]
    assert found.agents[1].output_digest == Digest.of(b"1.18.33\n")
    assert (found.uid, found.gid) == (1000, 1000)
    assert found.engine == "docker 20.10.24 rootless"
    assert "capabilities: none" in found.hardening
    assert "network interfaces: lo" in found.hardening
    assert scripted.engine.containers == {}


def test_an_answer_on_standard_error(scripted: Bench, verified: VerifiedImage, tmp_path: Path) -> None:
    scripted.engine.answers[PI] = said(b"", stderr=b"0.73.1\n")
    assert run(scripted, verified, tmp_path).agents[2].reported == "0.73.1"


def test_what_claude_code_does_as_root_and_as_the_agent(
    scripted: Bench, verified: VerifiedImage, tmp_path: Path
) -> None:
    root, agent = run(scripted, verified, tmp_path).root_behaviour
    assert root.startswith(
        "claude-code --dangerously-skip-permissions as uid 0: refused, exit code 1, output "
    )
    assert agent.startswith("claude-code --dangerously-skip-permissions as uid 1000: accepted, exit code 1, ")


def test_every_command_but_one_runs_as_the_agent(
    scripted: Bench, verified: VerifiedImage, tmp_path: Path
) -> None:
    as_root = []
    plain = scripted.engine.exec

    def watching(container: str, plan, **given):  # type: ignore[no-untyped-def]
        if plan.user == (0, 0):
            as_root.append(plan.argv)
        return plain(container, plan, **given)

    scripted.engine.exec = watching  # type: ignore[method-assign]
    run(scripted, verified, tmp_path)
    assert as_root == [SKIP_PERMISSIONS]


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (said(b"2.1.327 (Claude Code)\n"), "reports version 2.1.327"),
        (said(b"2.1.328-beta.1\n"), "reports version 2.1.328-beta.1"),
        (said(b"12.1.328\n"), "reports version 12.1.328"),
        (said(b"2.1.3280\n"), "reports version 2.1.3280"),
        (said(b""), "reports no version; it said: nothing"),
        (said(b"", stderr=b"warning: 2.1.328\n"), "reports no version"),
        (said(b"ready\n", stderr=b"2.1.328\n"), "reports no version"),
        (said(b"2.1.328.4\n"), "reports no version"),
        (said(b"2.1.328\n", exit_code=1), "exit code 1"),
        (
            said(exit_code=127, stderr=b"claude: not found"),
            "cannot be started (exit code 127): claude: not found",
        ),
        (said(exit_code=126), "cannot be started"),
        (
            said(
                exit_code=1,
                stderr=b"Error: claude native binary not installed. Its postinstall did not run.\n",
            ),
            "postinstall did not run",
        ),
        (Outcome(ending=Ending.TIMED_OUT, exit_code=None), "did not report its version within 60 s"),
        (said(b"2.1.328" + b" " * MAX_OUTPUT), "more than"),
        (said(b"\xff\xfe\x00"), "reports no version"),
    ],
)
def test_anything_else_fails_the_build_with_its_cause(
    scripted: Bench, verified: VerifiedImage, tmp_path: Path, answer: Outcome, cause: str
) -> None:
    scripted.engine.answers[CLAUDE] = answer
    with pytest.raises(BuildFailed) as caught:
        run(scripted, verified, tmp_path)
    assert cause in caught.value.what
    assert caught.value.what.startswith("claude-code 2.1.328 ")
    assert caught.value.code is ExitCode.BUILD
    assert "install-scripts" in caught.value.hint
    assert scripted.engine.containers == {}


def test_a_container_that_ends_is_not_the_images_fault(
    scripted: Bench, verified: VerifiedImage, tmp_path: Path
) -> None:
    def vanish(*_: object) -> Outcome:
        for row in scripted.engine.containers.values():
            row.running_file.unlink()
        return said(exit_code=137)

    scripted.engine.answers[CLAUDE] = vanish
    with pytest.raises(HostError) as caught:
        run(scripted, verified, tmp_path)
    assert caught.value.reason == "container-lost"
    assert scripted.engine.containers == {}


@pytest.mark.parametrize("where", ["tampers", "inside"])
def test_other_hardening_is_the_hosts_failure(
    scripted: Bench, verified: VerifiedImage, tmp_path: Path, where: str
) -> None:
    if where == "tampers":
        scripted.engine.tampers["privileged"] = True
    else:
        scripted.engine.inside["interfaces"] = "eth0"
    with pytest.raises(HostError, match="not what was planned"):
        run(scripted, verified, tmp_path)
    assert scripted.engine.containers == {}


def test_it_carries_the_owners_labels(scripted: Bench, verified: VerifiedImage, tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []
    plain = scripted.engine.create

    def watching(plan):  # type: ignore[no-untyped-def]
        seen.append(dict(plan.labels))
        return plain(plan)

    scripted.engine.create = watching  # type: ignore[method-assign]
    run(scripted, verified, tmp_path)
    (labels,) = seen
    assert labels["agent-image-builder.owner"] == scripted.owner.lease_id
    assert labels["agent-image-builder.purpose"] == "detect"
    assert dataclasses.is_dataclass(scripted.owner)
