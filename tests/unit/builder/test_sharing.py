"""Images through a registry: what goes, in which order, and that nothing which comes is believed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from builder.cli import main_inner
from builder.registry.bringing import MAX_REFERRER_MANIFEST, Asking, Brought, bring
from builder.registry.pulling import Pulled, take
from builder.registry.pushing import Pushed, push
from builder.registry.reference import base_tag, key_tag, parse_reference
from builder.resolve.exchange import Resolver, Secrets
from builder.workshop import Workshop
from images.config import BaseReference
from images.credentials import Secret
from images.digests import Digest
from images.errors import BuilderError, ExitCode, HostError, NetworkFailed, PinError, UsageError
from images.key import content_key
from images.oci import MEDIA_EMPTY, MEDIA_INDEX, MEDIA_MANIFEST
from provenance.attest import attest
from provenance.bundles import BUNDLE_TYPE
from provenance.layout import blob_path, list_images, open_image, read_index
from provenance.layout_writing import drop_manifests
from provenance.ledger import open_ledger
from provenance.referrers import LOCK_TYPE, add_referrer, read_referrers
from provenance.signing import KeySigner
from provenance.travelling import TRAVELLING, why_it_stays
from tests import results
from tests.attacks import Position, attack
from tests.fakes.evidence import key
from tests.fakes.layouts import flip, make_image
from tests.fakes.locks import AMD64
from tests.fakes.proved import NOW, facts_of
from tests.fakes.repository import Members, Repository, resolver_to
from tests.fakes.states import Team, files_of, make_team, workshop_at

TO = parse_reference("registry.test:5000/team/agents:1")
NAMED = replace(TO, tag="")
EMPTY = b"{}"


@dataclass
class Desk:
    """A team with a proved image, a registry, and the empty state of somebody else."""

    root: Path
    team: Team
    registry: Repository
    other: Workshop

    @property
    def image(self) -> Digest:
        return self.team.image.digest

    def push(self, to: BaseReference = TO, **changes: Any) -> Pushed:
        resolver = replace(resolver_to(self.registry, self.root / "staging"), **changes)
        return push(self.team.state.layout, self.image, to, resolver, "builder push")

    def bring(self, reference: BaseReference | None = None, **secrets: Any) -> Brought:
        resolver = resolver_to(self.registry, self.root / "staging", Secrets(**secrets))
        layout = self.other.state.layout
        asking = Asking(resolver=resolver, platform=AMD64, known=layout, command="builder pull REF")
        with self.other.state.staging("pull") as staging:
            brought = bring(reference or replace(NAMED, digest=self.image), asking, staging / "layout")
            self.pulled = take(self.other, brought)
            return brought

    def pull(self, reference: BaseReference | None = None) -> Pulled:
        self.bring(reference)
        return self.pulled

    def refused(self, reference: BaseReference | None = None) -> BuilderError:
        before = files_of(self.other.state)
        with pytest.raises(BuilderError) as found:
            self.bring(reference)
        assert files_of(self.other.state) == before
        assert list(self.other.state.staged.glob("pull-*")) == []
        assert found.value.hint
        return found.value


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    team = make_team(tmp_path)
    return Desk(tmp_path, team, Repository(), workshop_at(tmp_path / "other"))


@pytest.fixture
def shared(desk: Desk) -> Desk:
    """After a push."""
    desk.push()
    desk.registry.order.clear()
    return desk


def referrer(about: str, payload: bytes, **changes: Any) -> bytes:
    def blob(data: bytes, media_type: str) -> dict[str, Any]:
        return {"mediaType": media_type, "digest": str(Digest.of(data)), "size": len(data)}

    document = {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "artifactType": BUNDLE_TYPE,
        "config": blob(EMPTY, MEDIA_EMPTY),
        "layers": [blob(payload, BUNDLE_TYPE)],
        "subject": {"mediaType": MEDIA_MANIFEST, "digest": about, "size": 1},
    }
    return json.dumps({**document, **changes}).encode()


def bundle_of(desk: Desk) -> bytes:
    return read_referrers(desk.team.state.layout, desk.image).bundles[0].data


# -- push --------------------------------------------------------------------------------


def test_blobs_then_manifests_then_evidence_then_names(desk: Desk) -> None:
    done = desk.push()
    order = desk.registry.order
    assert sorted(order, key=["blob", "manifest", "referrer", "tag"].index) == order
    assert done.digest == desk.image
    assert str(done.reference) == f"registry.test:5000/team/agents:1@{desk.image}"
    key_of = content_key(desk.team.lock, AMD64)
    assert done.tags == ("1", key_tag(key_of))
    base = desk.team.base.digest
    assert desk.registry.tags == {
        "1": desk.image,
        key_tag(key_of): desk.image,
        base_tag(base): base,
    }
    assert (done.evidence, done.left) == (4, ())
    assert done.sent == len(desk.registry.blobs)
    assert all(Digest.of(raw) == digest for digest, raw in desk.registry.blobs.items())


def test_what_is_there_does_not_travel_again(shared: Desk) -> None:
    fed = shared.registry.fed
    done = shared.push()
    assert (done.sent, done.sent_bytes, shared.registry.fed) == (0, 0, fed)
    assert "blob" not in shared.registry.order
    layer = str(shared.team.image.manifest.layers[1].digest)
    del shared.registry.blobs[layer]
    assert (shared.push().sent, layer in shared.registry.blobs) == (1, True)


def test_without_a_tag_there_is_none_but_ours(desk: Desk) -> None:
    assert all(tag.startswith("builder-") for tag in desk.push(NAMED).tags)
    assert "latest" not in desk.registry.tags


def test_layers_of_a_base_are_mounted_from_its_own_repository(desk: Desk) -> None:
    desk.team.lock = replace(
        desk.team.lock, base=replace(desk.team.lock.base, name="registry.test:5000/team/base")
    )
    drop_manifests(
        desk.team.state.layout,
        frozenset(one.digest for one in read_index(desk.team.state.layout).manifests if one.artifact_type),
    )
    replace(desk.team.world, lock=desk.team.lock).prove()
    desk.push()
    sources = {one["digest"]: one["from"] for one in desk.registry.jobs[0]["push"]["blobs"]}
    own, base = (set(one.manifest.layers) for one in (desk.team.image, desk.team.base))
    assert {sources[layer.digest] for layer in base} == {"team/base"}
    assert {sources[layer.digest] for layer in own - base} == {""}


def test_a_launch_and_a_failed_summary_stay_here(desk: Desk) -> None:
    world = desk.team.world.with_policy(
        lambda text: text.replace("serial = 3", "min_ruleset = 99\nserial = 3")
    )
    failed = attest(world.verify(), world.policy, KeySigner(key("verifier")), version="1", now=NOW)
    assert not failed.passed
    assert "PASSED" in why_it_stays(failed.bundle.raw, desk.image)
    assert "not about this image" in why_it_stays(bundle_of(desk), Digest.of(b"another"))
    assert why_it_stays(b"no bundle", desk.image)
    assert not any(kind.endswith("launch/v1") for kind in TRAVELLING)
    assert why_it_stays(bundle_of(desk), desk.image) == ""


@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_an_image_that_is_not_whole_here_is_not_pushed(desk: Desk, damage: Callable[[Path], object]) -> None:
    damage(blob_path(desk.team.state.layout, desk.team.image.manifest.layers[1].digest))
    with pytest.raises(BuilderError) as found:
        desk.push()
    assert found.value.code in (7, 9)
    assert not desk.registry.tags
    assert not desk.registry.manifests


def test_a_registry_that_gives_back_another_manifest_or_none(desk: Desk) -> None:
    def swap(members: Members) -> None:
        if "manifest" in members:
            members["manifest"] += b" "

    for spoil in (swap, dict.clear):
        desk.registry.spoil = spoil
        with pytest.raises(NetworkFailed) as found:
            desk.push()
        assert found.value.reason == "wrong-digest"


@pytest.mark.parametrize("missing", [["sha256:" + "0" * 64], "x", [1], ["a"], [None, None]])
def test_a_container_that_wants_blobs_of_others_gets_nothing(desk: Desk, missing: Any) -> None:
    desk.registry.change = lambda answer: answer.__setitem__("missing", missing)
    with pytest.raises(HostError, match="nobody asked about"):
        desk.push()
    assert desk.registry.fed == 0


@pytest.mark.parametrize(
    "text", ["agents", "team/agents:1", "registry.test/a@sha256:1", "registry.test/", "-x.y/z", ""]
)
def test_what_is_no_reference_with_a_registry(text: str) -> None:
    with pytest.raises(UsageError) as found:
        parse_reference(text)
    assert "HOST/NAME" in found.value.hint


def test_a_push_to_a_digest_is_refused(desk: Desk) -> None:
    with pytest.raises(UsageError):
        desk.push(replace(TO, digest=desk.image))
    assert desk.registry.jobs == []


# -- pull --------------------------------------------------------------------------------


def test_an_image_comes_whole_and_verifies_like_the_one_that_went(shared: Desk) -> None:
    done = shared.pull()
    assert (done.digest, done.asked, done.evidence) == (shared.image, shared.image, 4)
    assert done.locks == (Digest.of(shared.team.raw_lock),)
    layout = shared.other.state.layout
    assert open_image(layout, shared.image, AMD64).digest == shared.image
    assert open_image(layout, shared.team.base.digest, AMD64)  # to compare the image with its plan
    world = replace(shared.team.world, layout=layout, image=open_image(layout, shared.image))
    assert world.verify().ok == shared.team.world.verify().ok
    assert {one.data for one in read_referrers(layout, shared.image).bundles} == {
        one.data for one in read_referrers(shared.team.state.layout, shared.image).bundles
    }
    with open_ledger(shared.other.state.ledger) as ledger:
        entry = ledger.find(content_key(shared.team.lock, AMD64), AMD64)
    assert entry is not None
    assert entry.digest == shared.image


def test_a_second_pull_brings_nothing_new(shared: Desk) -> None:
    shared.pull()
    before = files_of(shared.other.state)
    done = shared.pull()
    assert (done.blobs, done.manifests) == (0, 0)
    assert files_of(shared.other.state) == before
    have = shared.registry.jobs[-1]["pull"]["have"]
    assert {str(layer.digest) for layer in shared.team.image.manifest.layers} <= set(have)


def test_a_layer_that_is_damaged_here_comes_again(shared: Desk) -> None:
    shared.pull()
    layout = shared.other.state.layout
    layer = shared.team.image.manifest.layers[1].digest
    flip(blob_path(layout, layer))
    shared.pull()
    assert open_image(layout, shared.image, AMD64)


def test_a_tag_is_asked_only_where_there_is_no_digest(shared: Desk) -> None:
    assert shared.pull(replace(TO, digest=None)).asked == shared.image
    assert [one["pull"].get("tag") for one in shared.registry.jobs if "tag" in one.get("pull", {})] == ["1"]
    shared.pull(replace(TO, tag="gone", digest=shared.image))
    error = shared.refused(replace(TO, tag="gone"))
    assert isinstance(error, NetworkFailed)
    assert error.reason == "not-found"


def test_an_index_gives_the_image_of_this_machine(shared: Desk) -> None:
    entry = {"mediaType": MEDIA_MANIFEST, "digest": shared.image, "size": len(shared.team.image.manifest.raw)}
    arm = make_image(shared.root / "arm", architecture="arm64")
    entries = [
        {**entry, "platform": {"os": "linux", "architecture": "amd64"}},
        {**entry, "digest": arm, "platform": {"os": "linux", "architecture": "arm64"}},
    ]
    raw = json.dumps({"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": entries}).encode()
    index = Digest.of(raw)
    shared.registry.manifests[index] = raw
    done = shared.pull(replace(NAMED, digest=index))
    assert (done.asked, done.digest, done.evidence) == (index, shared.image, 4)
    assert open_image(shared.other.state.layout, index, AMD64).digest == shared.image


@pytest.mark.parametrize("platforms", [[], ["arm64"], ["amd64", "amd64"]])
def test_an_index_without_exactly_one_image_for_us(desk: Desk, platforms: list[str]) -> None:
    desk.push()
    entry = {"mediaType": MEDIA_MANIFEST, "digest": desk.image, "size": len(desk.team.image.manifest.raw)}
    raw = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MEDIA_INDEX,
            "manifests": [{**entry, "platform": {"os": "linux", "architecture": one}} for one in platforms],
        }
    ).encode()
    desk.registry.manifests[Digest.of(raw)] = raw
    error = desk.refused(replace(NAMED, digest=Digest.of(raw)))
    assert isinstance(error, NetworkFailed)
    assert error.reason in ("not-found", "wrong-digest")


def test_an_index_inside_an_index_is_no_image(shared: Desk) -> None:
    inner = json.dumps({"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": []}).encode()
    platform = {"os": "linux", "architecture": "amd64"}
    entry = {
        "mediaType": MEDIA_INDEX,
        "digest": str(Digest.of(inner)),
        "size": len(inner),
        "platform": platform,
    }
    outer = json.dumps({"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": [entry]}).encode()
    shared.registry.manifests |= {str(Digest.of(inner)): inner, str(Digest.of(outer)): outer}
    assert isinstance(shared.refused(replace(NAMED, digest=Digest.of(outer))), (PinError, HostError))


@attack(11, by=Position.REGISTRY)
def test_another_image_under_the_digest(shared: Desk) -> None:
    shared.registry.manifests[shared.image] += b" "
    error = shared.refused()
    assert isinstance(error, NetworkFailed)
    assert error.reason == "wrong-digest"


@attack(by=Position.REGISTRY)
def test_other_bytes_of_each_blob(shared: Desk) -> None:
    """Layer, configuration, evidence, lock: each is hashed again."""
    for digest, raw in sorted(shared.registry.blobs.items()):
        if digest == Digest.of(EMPTY):
            continue
        shared.registry.blobs[digest] = raw[:-1] + bytes([raw[-1] ^ 1])
        error = shared.refused()
        assert isinstance(error, NetworkFailed), digest
        assert error.reason == "wrong-digest"
        shared.registry.blobs[digest] = raw


@attack(by=Position.REGISTRY)
def test_other_bytes_of_a_referrers_manifest(shared: Desk) -> None:
    digest = shared.registry.listed[shared.image][0]
    shared.registry.manifests[digest] += b" "
    error = shared.refused()
    assert isinstance(error, NetworkFailed)
    assert error.reason == "wrong-digest"


OTHER = str(Digest.of(b"another image"))


@attack(23, by=Position.REGISTRY)
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"subject": {"mediaType": MEDIA_MANIFEST, "digest": OTHER, "size": 1}}, "another image"),
        ({"subject": None}, "another image"),
        ({"artifactType": "application/spdx+json"}, "not ours"),
        ({"artifactType": ""}, "not ours"),
        ({"layers": []}, "exactly one blob"),
        ({"manifests": []}, ""),
        ({"mediaType": MEDIA_INDEX, "manifests": []}, "media type"),
    ],
)
def test_what_a_referrer_is_its_own_manifest_says(shared: Desk, changes: dict[str, Any], why: str) -> None:
    """Whatever the list of the registry calls it; and it cannot keep the good evidence from coming."""
    payload = bundle_of(shared)
    shared.registry.attach(shared.image, referrer(shared.image, payload, **changes), payload, EMPTY)
    brought = shared.bring()
    if why:
        assert brought.evidence == 4
        assert why in " ".join(brought.left)
    assert shared.pulled.digest == shared.image


def test_evidence_that_is_none_is_left_out_and_said(shared: Desk) -> None:
    image, registry = shared.image, shared.registry
    attach = registry.attach
    attach(image, b"not JSON")
    attach(image, referrer(image, b"no bundle"), b"no bundle", EMPTY)
    attach(image, referrer(image, b"gone"), EMPTY)
    attach(image, referrer(image, b"x" * 10, annotations={"a": "x" * MAX_REFERRER_MANIFEST}), b"x" * 10)
    lock = b'{"a lock": "of somebody else"}\n'
    attach(image, referrer(image, lock, artifactType=LOCK_TYPE), lock, EMPTY)
    registry.refer(image, str(Digest.of(b"nowhere")))
    brought = shared.bring()
    assert brought.evidence == 4
    said = " ".join(brought.left)
    for why in (
        "not acceptable JSON",
        "its blobs did not come",
        "not whole in the registry",
        "no provenance names",
    ):
        assert why in said
    assert len(read_referrers(shared.other.state.layout, image).bundles) == 3


def test_a_blob_or_referrer_that_nobody_asked_for_ends_it(shared: Desk) -> None:
    def another_blob(members: Members) -> None:
        if any(name.startswith("manifests/") for name in members):
            members[f"blobs/sha256-{Digest.of(b'x').hex}"] = b"x"

    def a_thousand_more(members: Members) -> None:
        for number in range(1100):
            raw = referrer(OTHER, str(number).encode())
            members[f"manifests/sha256-{Digest.of(raw).hex}"] = raw

    def a_path(members: Members) -> None:
        members["manifests/../../x"] = b"{}"

    for spoil in (another_blob, a_thousand_more, a_path):
        shared.registry.spoil = spoil
        assert isinstance(shared.refused(), HostError)


def test_who_has_the_base_is_not_asked_for_it(shared: Desk) -> None:
    shared.pull()
    jobs = len(shared.registry.jobs)
    shared.pull()
    assert len(shared.registry.jobs) == jobs + 1


def test_a_base_that_is_not_there_is_said(shared: Desk) -> None:
    del shared.registry.manifests[shared.team.base.digest]
    brought = shared.bring()
    assert any(str(shared.team.base.digest) in line for line in brought.left)
    assert shared.pulled.digest == shared.image


# -- failures --------------------------------------------------------------------------------

REASONS = [
    ("E401", "auth"),
    ("E403", "auth"),
    ("E404", "not-found"),
    ("E429", "rate-limited"),
    ("E500", "server"),
    ("E503", "server"),
    ("E400", "server"),
    ("E413", "server"),
    ("ELINK", "server"),
    ("ETOOMANY", "server"),
    ("ECONFLICT", "server"),
    ("EREDIRECT", "server"),
    ("EBADMANIFEST", "server"),
    ("EBADDIGEST", "wrong-digest"),
    ("EBADSIZE", "truncated"),
    ("ECONNRESET", "truncated"),
    ("ETIMEDOUT", "unreachable"),
    ("ECONNREFUSED", "unreachable"),
    ("DEPTH_ZERO_SELF_SIGNED_CERT", "unreachable"),
]


@pytest.mark.parametrize(("code", "reason"), REASONS)
def test_each_failure_has_its_reason(desk: Desk, code: str, reason: str) -> None:
    error = {"code": code, "hop": "", "retry_after": "17"}
    desk.registry.errors = {"push": error, "pull": error}
    with pytest.raises(NetworkFailed) as pushed:
        desk.push()
    for found in (pushed.value, desk.refused()):
        assert found.reason == reason
        assert "builder lock" not in found.hint
        assert "registry.test:5000/team/agents" in found.where
        if reason == "rate-limited":
            assert "wait 17 seconds" in found.hint


@pytest.mark.parametrize("code", ["EFEED", "TypeError", "EUNKNOWN", "EINTEGRITY", "", "E\nx"])
def test_a_failure_that_is_nobodys_in_particular_is_the_resolvers(desk: Desk, code: str) -> None:
    desk.registry.errors = {"push": {"code": code}}
    with pytest.raises(HostError, match="did not finish"):
        desk.push()


def test_a_registry_on_our_own_loopback_is_not_the_containers(desk: Desk) -> None:
    desk.registry.errors = {"push": {"code": "ECONNREFUSED"}}
    with pytest.raises(NetworkFailed) as found:
        desk.push(parse_reference("127.0.0.1:5000/team/agents"))
    assert "an address of its own" in found.value.hint


def test_the_login_of_this_registry_alone_and_nothing_shows(shared: Desk) -> None:
    asked: list[str] = []

    def helper(registry: str) -> Secret:
        asked.append(registry)
        return Secret(b"me:dummy-helper-password")

    logins = (("other.test", Secret(b"me:dummy-other")), ("registry.test:5000", Secret(b"me:dummy-file")))
    shared.bring(logins=logins, ask_helper=helper)
    assert set(asked) == {"registry.test:5000"}
    for files in shared.registry.files[-2:]:
        assert files["login"] == b"me:dummy-helper-password"
        assert not any(b"dummy" in raw for name, raw in files.items() if name != "login")
    shared.bring(logins=logins)
    assert shared.registry.files[-1]["login"] == b"me:dummy-file"


def test_killed_while_it_lands_names_nothing(shared: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("builder.storage.landing.add_manifest", die)
        with pytest.raises(Killed):
            shared.pull()
    assert list_images(shared.other.state.layout) == ()
    assert shared.pull().evidence == 4


# -- at the command line ---------------------------------------------------------------------------------


def typed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    @contextmanager
    def resolver(*_: object) -> Iterator[Resolver]:
        yield resolver_to(desk.registry, desk.root / "staging")

    for module in ("builder.cli.verbs.push_verb", "builder.registry.pulling"):
        monkeypatch.setattr(f"{module}.open_resolver", resolver)
    monkeypatch.setattr("builder.cli._scrub_environment", lambda _: None)
    monkeypatch.setattr("builder.cli.signal.signal", lambda *_: None)
    state = desk.team.state if words[0] == "push" else desk.other.state
    places = ("--state", str(state.root), "--config-dir", str(desk.root / "desk-config"))
    code = main_inner([*words, *places], {"HOME": str(desk.root), "PATH": "/usr/bin:/bin"})
    told = capsys.readouterr()
    return code, told.out, told.err


def test_push_prints_what_pull_takes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pinned = f"registry.test:5000/team/agents@{desk.image}"
    code, out, err = typed(desk, monkeypatch, capsys, "push", desk.image, str(TO))
    assert (code, out) == (0, f"{pinned}\n")
    assert "4 pieces of evidence" in err
    code, out, _ = typed(desk, monkeypatch, capsys, "push", desk.image, str(TO), "--json")
    document = json.loads(out)
    results.check(document)
    assert (document["reference"], document["sent"], document["tags"][0]) == (pinned, 0, "1")
    code, out, err = typed(desk, monkeypatch, capsys, "pull", str(TO))
    assert (code, out) == (0, f"{desk.image}\n")
    assert pinned in err
    assert "builder verify" in err
    code, out, _ = typed(desk, monkeypatch, capsys, "pull", pinned, "--json")
    document = json.loads(out)
    results.check(document)
    assert document["digest"] == desk.image
    assert document["evidence"] == 4


def test_a_pull_without_digest_or_tag_and_a_registry_that_fails(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = typed(desk, monkeypatch, capsys, "pull", "registry.test/team/agents")
    assert (code, out) == (ExitCode.USAGE, "")
    assert "neither a digest nor a tag" in err
    code, out, _ = typed(desk, monkeypatch, capsys, "pull", "registry.test/team/agents:1", "--json")
    assert code == ExitCode.NETWORK
    assert json.loads(out)["error"]["reason"] == "not-found"


def test_prv_08_evidence_never_changes_what_an_image_is_called(shared: Desk) -> None:
    """More evidence, a tag, an index around it: the name is the digest of the platform's manifest."""
    before = len(shared.registry.manifests)
    add_referrer(shared.team.image, shared.team.world.bundles(facts_of(built=NOW))["scan"])
    assert shared.push().digest == shared.image
    assert len(shared.registry.manifests) == before + 1
    assert set(shared.registry.tags.values()) == {shared.image, shared.team.base.digest}
    assert shared.pull(replace(TO, digest=None)).digest == shared.image
