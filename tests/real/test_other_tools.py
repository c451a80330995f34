"""Programs of others read what we push, carry it along, and attach what counts with us, or does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from backend.containers import LoadedImage
from backend.engines.protocol import Engine
from builder.bootstrap import Bootstrapped
from builder.building.buildx import take_buildx
from builder.registry.reference import base_tag
from builder.state import State
from images.digests import Digest
from images.oci import MEDIA_EMPTY, OciImage
from provenance.bundles import BUNDLE_TYPE, open_bundle
from provenance.checks import CheckId, Status
from provenance.layout import open_image
from provenance.predicates import DETECTION_TYPE, PROVENANCE_TYPE, SBOM_TYPE, SCAN_TYPE, VSA_TYPE
from provenance.referrers import LOCK_TYPE, read_referrers
from tests.fakes.evidence import attach_raw, b64, edit_bundle, key, pkcs8, statement_bytes
from tests.fakes.proved import World, make_world
from tests.real.programs import attest_blob, import_key, typed
from tests.real.registries import Running, build, serving
from tests.real.sharing import Desk, at_desk, loaded_resolver, start

pytestmark = pytest.mark.real
# As cosign calls them.
TYPES = {
    PROVENANCE_TYPE: "slsaprovenance1",
    SCAN_TYPE: SCAN_TYPE,
    DETECTION_TYPE: DETECTION_TYPE,
    VSA_TYPE: VSA_TYPE,
    SBOM_TYPE: "cyclonedx",
}


@pytest.fixture(scope="module")
def loaded(engine: Engine, kept_state: State, bootstrapped: Bootstrapped) -> LoadedImage:
    return loaded_resolver(engine, kept_state, bootstrapped)


@pytest.fixture
def desk(engine: Engine, loaded: LoadedImage, tmp_path: Path) -> Iterator[Desk]:
    with at_desk(engine, loaded, tmp_path) as made:
        yield made


@pytest.fixture(params=["distribution", "referrers"])
def registry(
    request: pytest.FixtureRequest, desk: Desk, pytestconfig: pytest.Config, kept_state: State
) -> Iterator[Running]:
    """One without the referrers API, which has the tag in its place, and one with it."""
    with start(request.param, pytestconfig, kept_state, desk.root / "registry") as running:
        yield running


@pytest.fixture
def loopback(desk: Desk, pytestconfig: pytest.Config, kept_state: State) -> Iterator[Running]:
    """A second one, at the address where these programs expect no TLS."""
    assert pytestconfig.cache is not None
    binary = build(pytestconfig.cache, kept_state.bootstrap)
    with serving(binary, desk.root / "loopback", host="127.0.0.1") as running:
        yield running


@pytest.fixture
def build_container(kept_state: State, bootstrapped: Bootstrapped) -> OciImage:
    return open_image(kept_state.layout, bootstrapped.build_container)


@dataclass
class Tools:
    """The programs, in a home of their own."""

    cosign: Path
    oras: Path
    home: Path

    def verdict(self, reference: str, kind: str, signer: str = "builder") -> bool:
        """What `cosign verify-attestation` says."""
        self.home.mkdir(exist_ok=True)
        (self.home / "key.pub").write_bytes(key(signer).public.pem)
        done = typed(
            self.cosign,
            self.home,
            "verify-attestation",
            "--key=key.pub",
            "--insecure-ignore-tlog",
            f"--type={kind}",
            "--allow-http-registry",
            reference,
        )
        return done.returncode == 0

    def ask_oras(self, *arguments: str) -> str:
        done = typed(self.oras, self.home, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def discovered(self, *target: str) -> set[tuple[str, str]]:
        """Digest and type of everything that `oras discover` lists."""
        found = json.loads(self.ask_oras("discover", "--format=json", "--depth=1", *target))
        return {(one["digest"], one["artifactType"]) for one in found["referrers"]}

    def attach(self, reference: str, bundle: bytes) -> None:
        (self.home / "bundle.json").write_bytes(bundle)
        self.ask_oras(
            "attach",
            "--plain-http",
            f"--artifact-type={BUNDLE_TYPE}",
            reference,
            f"bundle.json:{BUNDLE_TYPE}",
        )


@pytest.fixture
def tools(cosign: Path, oras: Path, tmp_path: Path) -> Tools:
    return Tools(cosign, oras, tmp_path / "home")


def attached(world: World) -> set[tuple[str, str]]:
    found = read_referrers(world.layout, world.image.digest)
    return {(str(one.manifest), one.artifact_type) for one in (*found.bundles, *found.locks)}


def failed(world: World) -> set[CheckId]:
    """The checks that say no."""
    return {one.id for one in world.verify().checks if one.status is Status.FAILED}


def without_provenance(desk: Desk) -> World:
    """The same image with everything but the one statement."""
    world = make_world(desk.root / "lacking")
    world.prove(without=("provenance",))
    assert world.image.digest == desk.image
    assert not world.verify().ok
    desk.world = world
    return world


# -- what we push, read by others ------------------------------------------------------------------------


def test_cosign_verifies_in_a_registry_what_we_pushed(desk: Desk, registry: Running, tools: Tools) -> None:
    desk.world.prove(sbom=True)
    assert desk.world.attest().passed
    desk.push(registry.address)
    image = f"{registry.address}/team/agents@{desk.image}"
    for kind, name in TYPES.items():
        signer = "verifier" if kind == VSA_TYPE else "builder"
        assert tools.verdict(image, name, signer), kind
        assert not tools.verdict(image, name, "stranger"), kind
    assert not tools.verdict(image, "spdxjson")


@pytest.mark.parametrize("registry", ["distribution"], indirect=True)
def test_cosign_refuses_in_a_registry_what_was_changed(desk: Desk, registry: Running, tools: Tools) -> None:
    """One letter of the payload; the signature of another statement of the same key; nothing at all."""
    made = desk.world.bundles()
    provenance, scan = (json.loads(made[name].raw)["dsseEnvelope"] for name in ("provenance", "scan"))
    payload = open_bundle(made["provenance"].raw, "bundle").payload
    changed = payload.replace(b"0.1.0", b"0.1.1")
    assert changed != payload
    wrong = {
        "payload": edit_bundle(made["provenance"].raw, dsseEnvelope__payload=b64(changed)),
        "signature": edit_bundle(
            made["provenance"].raw, dsseEnvelope__signatures__0__sig=scan["signatures"][0]["sig"]
        ),
        "nothing": b"",
        "unchanged": made["provenance"].raw,
    }
    assert provenance["signatures"] != scan["signatures"]
    for name, raw in wrong.items():
        desk.world = make_world(desk.root / name)
        desk.world.prove(without=("provenance",))
        if raw:
            attach_raw(desk.world.layout, desk.image, raw)
        desk.push(registry.address, f"team/{name}:1")
        image = f"{registry.address}/team/{name}@{desk.image}"
        assert tools.verdict(image, "slsaprovenance1") == (name == "unchanged"), name
        assert tools.verdict(image, SCAN_TYPE), name


def test_oras_lists_our_evidence_and_takes_it_along(
    desk: Desk, registry: Running, loopback: Running, tools: Tools
) -> None:
    """To another registry, into a layout and out of it again: each copy is proved as the first was."""
    tools.home.mkdir()
    desk.push(registry.address)
    source = f"{registry.address}/team/agents:1"
    expected = attached(desk.world)
    assert {kind for _, kind in expected} == {BUNDLE_TYPE, LOCK_TYPE}
    assert len(expected) == 4
    listed = tools.discovered("--plain-http", source)
    assert {digest for digest, _ in listed} == {digest for digest, _ in expected}
    # go-containerregistry's list gives the type of each config for the type of the artifact.
    assert {kind for _, kind in listed} in ({BUNDLE_TYPE, LOCK_TYPE}, {MEDIA_EMPTY})

    other = f"{loopback.address}/mirror/agents:1"
    tools.ask_oras("cp", "-r", "--from-plain-http", "--to-plain-http", source, other)
    assert tools.discovered("--plain-http", other) == expected
    tools.ask_oras("cp", "-r", "--from-plain-http", "--to-oci-layout", other, "copied:1")
    assert tools.discovered("--oci-layout", "copied:1") == expected
    # The base is not attached to the image: its manifest has a tag of its own.
    base = base_tag(desk.world.base.digest)
    tools.ask_oras("cp", "--from-plain-http", "--to-oci-layout", f"{source[:-2]}:{base}", f"copied:{base}")
    world = desk.world
    copied = World(
        world.root,
        tools.home / "copied",
        open_image(tools.home / "copied", desk.image),
        world.base,
        world.lock,
        world.policy,
        world.expectation,
    )
    assert copied.verify().ok

    back = f"{registry.address}/team/back"
    for tag in ("1", base):
        tools.ask_oras("cp", "-r", "--from-oci-layout", "--to-plain-http", f"copied:{tag}", f"{back}:{tag}")
    brought = desk.pull(registry.address, "team/back:1")
    assert (brought.asked, brought.evidence, brought.left) == (desk.image, 4, ())
    assert attached(desk.arrived(brought)) == expected
    assert desk.arrived(brought).verify().ok


@pytest.mark.parametrize("registry", ["distribution"], indirect=True)
def test_skopeo_and_buildx_know_the_image_by_the_same_digest(
    desk: Desk, registry: Running, loopback: Running, build_container: OciImage
) -> None:
    desk.push(registry.address)
    home = desk.root / "home"
    home.mkdir()
    (home / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')

    def skopeo(*arguments: str) -> str:
        done = typed("skopeo", home, "--policy=policy.json", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    image = f"team/agents@{desk.image}"
    for name in ("team/agents:1", image):
        seen = skopeo(
            "inspect", "--tls-verify=false", "--format={{.Digest}}", f"docker://{registry.address}/{name}"
        )
        assert seen == desk.image
    plain = ("--src-tls-verify=false", "--dest-tls-verify=false")
    skopeo("copy", *plain, f"docker://{registry.address}/{image}", f"docker://{loopback.address}/team/copy:1")
    skopeo("copy", *plain, f"docker://{registry.address}/{image}", "oci:copied:1")
    assert open_image(home / "copied", desk.image).digest == desk.image

    (home / "plugins").mkdir()
    buildx = take_buildx(build_container, home / "plugins")
    for what in (f"team/copy@{desk.image}", "team/copy:1"):
        done = typed(buildx, home, "imagetools", "inspect", f"{loopback.address}/{what}")
        assert done.returncode == 0, done.stderr
        assert f"Digest:    {desk.image}" in done.stdout
        raw = typed(buildx, home, "imagetools", "inspect", "--raw", f"{loopback.address}/{what}")
        assert Digest.of(raw.stdout.encode()) == desk.image


# -- what others attach, read by us ----------------------------------------------------------------------


@pytest.mark.parametrize("registry", ["distribution"], indirect=True)
def test_what_cosign_signs_with_a_trusted_key_counts(desk: Desk, registry: Running, tools: Tools) -> None:
    payload = open_bundle(desk.world.bundles()["provenance"].raw, "bundle").payload
    without_provenance(desk)
    desk.push(registry.address)
    image = f"{registry.address}/team/agents@{desk.image}"
    import_key(tools.cosign, tools.home, pkcs8("stranger"))
    tools.attach(image, attest_blob(tools.cosign, tools.home, payload))
    brought = desk.pull(registry.address)
    assert (brought.evidence, brought.left) == (4, ())
    assert not desk.arrived(brought).verify().ok

    trusted = tools.home / "trusted"
    import_key(tools.cosign, trusted, pkcs8("builder"))
    tools.attach(image, attest_blob(tools.cosign, trusted, payload))
    brought = desk.pull(registry.address)
    assert (brought.evidence, brought.left) == (5, ())
    assert desk.arrived(brought).verify().ok


def test_what_cosign_signs_of_another_form_or_type_counts_for_nothing(
    desk: Desk, registry: Running, tools: Tools
) -> None:
    """`cosign attest` writes statements of version 0.1; and no type that we do not know becomes evidence."""
    predicate = json.loads(open_bundle(desk.world.bundles()["provenance"].raw, "x").payload)["predicate"]
    world = without_provenance(desk)
    desk.push(registry.address)
    image = f"{registry.address}/team/agents@{desk.image}"
    import_key(tools.cosign, tools.home, pkcs8("builder"))
    foreign = statement_bytes(desk.image, "https://example.com/approved/v1", {"approved": True})
    approved = attest_blob(tools.cosign, tools.home, foreign)
    tools.attach(image, approved)
    (tools.home / "predicate.json").write_text(json.dumps(predicate))
    done = typed(
        tools.cosign,
        tools.home,
        "attest",
        "--key=imported.key",
        "--type=slsaprovenance1",
        "--predicate=predicate.json",
        "--signing-config=signing.json",
        "--bundle=attested.json",
        "--allow-http-registry",
        "--yes",
        image,
    )
    assert done.returncode == 0, done.stderr
    assert tools.verdict(image, "slsaprovenance1")  # as cosign has it, all is well
    assert len(tools.discovered("--plain-http", image)) == len(attached(world)) + 2
    brought = desk.pull(registry.address)
    assert brought.evidence == 2
    assert len(brought.left) == 3, brought.left
    for why in ("do not travel", "Statement/v1", "a lock that no provenance names"):
        assert any(why in line for line in brought.left), brought.left
    before = failed(world)
    for raw in (approved, (tools.home / "attested.json").read_bytes()):
        attach_raw(world.layout, desk.image, raw)
        assert failed(world) == before
