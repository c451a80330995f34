"""Every reason of a refusal has a test that meets it, and a line in the reference."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.account import account_of
from backend.admission import DEVELOPMENT_ALLOWS, admit
from backend.host import Host, look_at_host
from backend.journal import Boundary
from backend.launch import launch
from backend.logins.leasing import lease_login
from backend.plan import plan_launch
from backend.probe import HostCheck, ProbeLine, ProbeName
from backend.projection.credentials import read_credential
from backend.projection.routes import Route
from backend.records import LaunchEnding, Observed, predicate
from backend.requests import LaunchClass
from images.digests import Digest
from images.errors import LaunchReason, LaunchRefused
from images.oci import Platform
from provenance.layout import open_image
from provenance.policy import Enable, Mode
from provenance.policy_model import ACCEPTABLE
from provenance.verify import VerifiedImage
from tests.fakes.admitted import NOW, Bench, admitted_of, networked, probe_of, request
from tests.fakes.enabled import turned_on
from tests.fakes.engine import DOCKER_FACTS, said
from tests.fakes.kept_logins import CLAUDE, store_at
from tests.fakes.layouts import make_image
from tests.fakes.locks import AMD64
from tests.fakes.projected import credential, named, projecting_argv, projection
from tests.fakes.sources import source_of

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
Meet = Callable[[Bench, VerifiedImage], object]


def admitting(verified: VerifiedImage, *missing: ProbeName, **given: object) -> object:
    options = {"facts": DOCKER_FACTS, "platform": AMD64, "host": ()} | given
    return admit(verified, verified.policy, probe_of(*missing), **options)  # type: ignore[arg-type]


def host_of(at: Bench, name: HostCheck, file: str = "", *, rootless: bool = True) -> tuple[ProbeLine, ...]:
    """One line about a host that has no file but this one, and no state where it should be."""
    root = at.leases.parent / "host"
    if file:
        (root / file).parent.mkdir(parents=True)
        (root / file).write_text("1")
    facts = dataclasses.replace(DOCKER_FACTS, rootless=rootless)
    lines = look_at_host(Host(facts=facts, uid_map=(), state=root / "gone", keys=(root / file,), root=root))
    return tuple(line for line in lines if line.name is name)


def unpinned(verified: VerifiedImage) -> VerifiedImage:
    base = dataclasses.replace(verified.lock.base, pinned=False)
    return dataclasses.replace(verified, lock=dataclasses.replace(verified.lock, base=base))


def tampered(at: Bench, verified: VerifiedImage, **changes: object) -> object:
    at.engine.tampers.update(changes)
    return launch(at.controller, admitted_of(verified), request())


def twice(at: Bench, verified: VerifiedImage) -> object:
    at.engine.answers[("true",)] = said()
    launch(at.controller, admitted_of(verified), request())
    return launch(at.controller, admitted_of(verified), request())


def moved(at: Bench, verified: VerifiedImage) -> object:
    at.engine.answers[("true",)] = said()
    launch(at.controller, admitted_of(verified), request())
    other = admitted_of(verified, mode=Mode.DEVELOPMENT)
    return launch(at.controller, other, request(step=2))


def asked(at: Bench, verified: VerifiedImage, **changes: object) -> object:
    return launch(at.controller, admitted_of(verified), request(**changes))


def missing_program(at: Bench, verified: VerifiedImage) -> object:
    at.engine.inside["command"] = ""
    return asked(at, verified)


def unusable(at: Bench, verified: VerifiedImage) -> object:
    at.engine.faults = b"cannot-create\n"
    return asked(at, verified, source=source_of(at.leases.parent))


def rooted(at: Bench, _: VerifiedImage) -> object:
    layout = at.leases.parent / "rooted"
    return account_of(open_image(layout, make_image(layout, config={"User": "0:0"})))


def not_placed(at: Bench, verified: VerifiedImage) -> object:
    given = projection(Route.PI_OAUTH)
    at.engine.answers[projecting_argv(given)] = said(exit_code=1, stderr=b"tar: no room")
    return asked(at, verified, projection=given)


def emptied(at: Bench, verified: VerifiedImage) -> object:
    at.engine.packs = lambda _: bytes(1024)
    return launch(at.controller, admitted_of(verified, rehash_store=True), request())


OTHER = Digest.of(b"another")
PEER = "api.anthropic.com:443"
MEET: dict[LaunchReason, Meet] = {
    LaunchReason.NOT_VERIFIED: lambda _, v: admitting(dataclasses.replace(v, summary=None)),
    LaunchReason.NO_EXPECTATION: lambda _, v: admitting(dataclasses.replace(v, checks=())),
    LaunchReason.POLICY: lambda _, v: admit(
        v,
        dataclasses.replace(v.policy, digest=OTHER),
        probe_of(),
        facts=DOCKER_FACTS,
        platform=AMD64,
        host=(),
    ),
    LaunchReason.UNPINNED_BASE: lambda _, v: admitting(unpinned(v)),
    LaunchReason.PLATFORM: lambda _, v: admitting(v, platform=Platform.parse("linux/arm64")),
    LaunchReason.IMAGE_SETTINGS: rooted,
    LaunchReason.ENGINE_MODE: lambda _, v: admitting(v, ProbeName.ROOTLESS),
    LaunchReason.ENGINE_IDENTITY: lambda _, v: admitting(v, ProbeName.IDENTITY),
    LaunchReason.STORAGE_DRIVER: lambda _, v: admitting(v, ProbeName.STORAGE),
    LaunchReason.LIMITS_NOT_ENFORCED: lambda _, v: admitting(v, ProbeName.PIDS_LIMIT),
    LaunchReason.DEATH_WATCH: lambda _, v: admitting(v, ProbeName.DEATH_WATCH),
    LaunchReason.KEYS_READABLE: lambda at, v: admitting(
        v, host=host_of(at, HostCheck.KEYS, "keys/builder.key", rootless=False)
    ),
    LaunchReason.SELINUX: lambda at, v: admitting(
        v, host=host_of(at, HostCheck.SELINUX, "sys/fs/selinux/enforce")
    ),
    LaunchReason.SUBORDINATE_IDS: lambda at, v: admitting(v, host=host_of(at, HostCheck.SUBORDINATE_IDS)),
    LaunchReason.HOST_ROOM: lambda at, v: admitting(v, host=host_of(at, HostCheck.DISK)),
    LaunchReason.IMAGE_ID: lambda at, v: tampered(at, v, image_id=str(OTHER)),
    LaunchReason.ENGINE_STORE: emptied,
    LaunchReason.READ_BACK: lambda at, v: tampered(at, v, read_only_root=False),
    LaunchReason.NETWORK_UNSUPPORTED: lambda at, v: launch(
        at.controller, admitted_of(networked(v, PEER), shared_files=False), request(allow=(PEER,))
    ),
    LaunchReason.NETWORK_CEILING: lambda at, v: asked(at, v, allow=(PEER,)),
    LaunchReason.NETWORK_RELAY: lambda at, v: asked(at, networked(v, PEER, renderer=4), allow=(PEER,)),
    LaunchReason.UNKNOWN_AGENT: lambda at, v: asked(at, v, command=(), agent="goose"),
    LaunchReason.COMMAND_MISSING: missing_program,
    LaunchReason.CLASS_UNSUPPORTED: lambda at, v: asked(at, v, launch_class=LaunchClass.DETECT),
    LaunchReason.SOURCE_REQUIRED: lambda at, v: asked(at, v, launch_class=LaunchClass.REVIEW),
    LaunchReason.NOT_A_CANDIDATE: lambda at, v: asked(
        at, v, launch_class=LaunchClass.FIX, source=source_of(at.leases.parent)
    ),
    LaunchReason.COMMAND_ONLY: lambda at, v: asked(
        at,
        v,
        launch_class=LaunchClass.EXPORT_COMMAND,
        source=source_of(at.leases.parent),
        command=(),
        agent="pi",
    ),
    LaunchReason.WORKSPACE: unusable,
    LaunchReason.CREDENTIAL_ROUTE: lambda at, v: asked(at, v, projection=projection(Route.OPENCODE_API_KEY)),
    LaunchReason.CREDENTIAL_FOR_HOSTING: lambda *_: read_credential(
        named(Route.PI_API_KEY), b"gh" + b"p_" + b"a1" * 18, NOW
    ),
    LaunchReason.CREDENTIAL_BUSY: lambda at, _: twice_leased(at.leases.parent / "logins"),
    LaunchReason.PROJECTION: not_placed,
    LaunchReason.NOT_INSTALLED: lambda _, v: turned_on(v, Enable(mcp=("nowhere",))),
    LaunchReason.SERVER_SECRET: lambda at, v: launch(at.controller, turned_on(v), request()),
    LaunchReason.RUN_TAKEN: twice,
    LaunchReason.RUN_PINNED: moved,
}


def twice_leased(root: Path) -> None:
    store = store_at(root)
    store.write(CLAUDE, (credential(Route.CLAUDE_LOGIN),), NOW, encrypted=False)
    with lease_login(store, CLAUDE, lambda: NOW), lease_login(store, CLAUDE, lambda: NOW):
        raise AssertionError("two launches have it")


@pytest.mark.parametrize("reason", list(LaunchReason))
def test_each_reason_is_met(at: Bench, verified: VerifiedImage, reason: LaunchReason) -> None:
    with pytest.raises(LaunchRefused) as caught:
        MEET[reason](at, verified)
    assert caught.value.reason == reason
    assert caught.value.what
    assert caught.value.hint
    assert at.engine.containers == {}


def rows(name: str, heading: str) -> dict[str, list[str]]:
    """A table of the reference: first cell (without its backticks) -> the other cells."""
    found: dict[str, list[str]] = {}
    table = (REFERENCE / name).read_text().partition(heading)[2]
    for line in table.splitlines()[2:]:
        if not line.startswith("|"):
            break
        first, *rest = [cell.strip() for cell in line.strip("|").split("|")]
        for word in re.findall(r"`([^`]+)`", first):
            found[word] = rest
    return found


def test_the_reference_has_a_line_for_each_reason_and_tells_the_truth() -> None:
    table = rows("launch-refusals.md", "| reason |")
    assert set(table) == {reason.value for reason in LaunchReason}
    for reason in LaunchReason:
        development, by_name = table[reason.value][2:]
        assert development == ("yes" if reason in DEVELOPMENT_ALLOWS else "no"), reason
        assert by_name == ("yes" if reason in ACCEPTABLE else "no"), reason


def test_the_reference_of_the_record_names_every_field(at: Bench, verified: VerifiedImage) -> None:
    plan = plan_launch(admitted_of(verified), request(), at.owner)
    observed = Observed(started=NOW, finished=NOW, ending=LaunchEnding.COMPLETED)
    table = rows("launch-record.md", "| field |")
    assert set(table) - {"settings.inside"} == set(predicate(plan, observed, "urn:x", "1"))
    for ending in LaunchEnding:
        assert f"`{ending.value}`" in table["ending"][0]
    assert set(rows("launch-record.md", "| boundary |")) == {one.value for one in Boundary}
