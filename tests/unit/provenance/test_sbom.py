"""The bill of materials: valid by the official validator, the same each time, and held against the lock."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.model.bom import Bom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from images.digests import Digest, canonical_json
from images.key import content_key
from images.lock import Bundled, Lock
from images.lockfile import lock_digest
from provenance.checks import CheckId, Status
from provenance.predicates import SBOM_BUILDER, SBOM_LOCK, SBOM_TYPE
from provenance.referrers import add_referrer
from provenance.sbom import InstalledDeb, SbomFacts, installed_debs, make_sbom
from provenance.signing import sign
from provenance.statements import Statement
from tests.fakes.evidence import key, statement
from tests.fakes.locks import AMD64, make_added_lock, make_full_lock, make_lock, with_toolchain
from tests.fakes.policies import BUILDER_ID, TRUST
from tests.fakes.proved import World, facts_of, make_world

VALIDATOR = JsonStrictValidator(SchemaVersion.V1_6)
STATUS = b"""\
Package: make
Status: install ok installed
Architecture: amd64
Version: 4.2-1

Package: libc6
Status: install ok installed
Architecture: amd64
Version: 1:2.36-9+deb12u14
Description: a library
 Status: deinstall ok config-files

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1

not a paragraph
"""
LICENCES = {
    "npm:chalk@5.6.2": "MIT",
    "npm:ansi@1.0.0": "(MIT OR Apache-2.0)",
    "npm:@anthropic-ai/claude-code@2.1.328": "SEE LICENSE IN README.md",
    "npm:protobufjs@7.6.6": "bsd-3-clause",
}


def facts(lock: Lock, **changes: Any) -> SbomFacts:
    made = SbomFacts(
        image=Digest.of(b"image"),
        image_name="team/agents",
        platform=AMD64,
        lock=lock,
        key=content_key(lock, AMD64),
        builder_id=BUILDER_ID,
        version="0.1.0",
        codename="bookworm",
        installed=installed_debs(STATUS),
        licences=LICENCES,
    )
    return replace(made, **changes)


def bundling(lock: Lock) -> Lock:
    """With a package inside of another one's tarball, below one that is an artifact, and on top."""
    agent = next(one for one in lock.agents if one.name == "pi")
    inner = (
        Bundled("node_modules/chalk/node_modules/inner", "1.0.0"),
        Bundled("node_modules/chalk/node_modules/inner/node_modules/deep", "2.0.0"),
    )
    tree = replace(agent.tree(AMD64), bundled=inner)
    agents = tuple(replace(one, trees=(tree,)) if one is agent else one for one in lock.agents)
    return replace(lock, agents=agents)


LOCKS = {
    "small": make_lock,
    "full": make_full_lock,
    "with all kinds": lambda: with_toolchain(make_added_lock()),
    "with bundled packages": lambda: bundling(make_lock()),
}


@pytest.mark.parametrize("make", LOCKS.values(), ids=LOCKS)
def test_it_is_valid_and_others_can_read_it(make: Callable[[], Lock]) -> None:
    lock = make()
    bill: dict[str, Any] = make_sbom(facts(lock))
    text = canonical_json(bill).decode()
    assert VALIDATOR.validate_str(text) is None
    read = Bom.from_json(json.loads(text))  # type: ignore[attr-defined]
    assert len(read.components) == len(bill["components"])
    refs = ["image", *(one["bom-ref"] for one in bill["components"])]
    assert len(set(refs)) == len(refs)
    assert [one["ref"] for one in bill["dependencies"]] == refs
    assert {ref for one in bill["dependencies"] for ref in one["dependsOn"]} == set(refs) - {"image"}
    for one in bill["components"]:
        assert PackageURL.from_string(one["purl"]).to_string() == one["purl"]
    named = {one["bom-ref"] for one in bill["components"]}
    assert {artifact.id for artifact in lock.artifacts} <= named


def test_each_kind_has_its_package_url_its_hash_and_its_licence() -> None:
    bill: dict[str, Any] = make_sbom(facts(with_toolchain(make_added_lock())))
    found = {one["bom-ref"]: one for one in bill["components"]}
    scoped = found["npm:@anthropic-ai/claude-code@2.1.328"]
    assert scoped["purl"] == "pkg:npm/%40anthropic-ai/claude-code@2.1.328"
    assert scoped["hashes"][0]["alg"] == "SHA-512"
    assert scoped["licenses"] == [{"license": {"name": "SEE LICENSE IN README.md"}}]
    assert found["npm:protobufjs@7.6.6"]["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert found["npm:ansi@1.0.0"]["licenses"] == [{"expression": "(MIT OR Apache-2.0)"}]
    make = found["deb:make:amd64@4.3-4.1"]
    assert make["purl"] == "pkg:deb/debian/make@4.3-4.1?arch=amd64&distro=bookworm"
    libc = found["base:libc6:amd64@1:2.36-9+deb12u14"]
    assert PackageURL.from_string(libc["purl"]).version == "1:2.36-9+deb12u14"
    assert not [ref for ref in found if ref.startswith(("base:make", "base:gone"))]  # replaced; not installed
    wheel = found["wheel:mcp_server_look-2026.10.24-py3-none-any.whl"]
    assert wheel["purl"].startswith("pkg:pypi/mcp-server-look@2026.10.24")
    assert found["skill:review"]["type"] == "data"
    places = {one["name"]: one["value"] for one in found["skill:review"]["properties"]}
    assert places["agent-image-builder:place"] == "skills.review"
    needs = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert needs["npm:chalk@5.6.2"] == ["npm:ansi@1.0.0"]
    assert "skill:review" in needs["image"]
    assert "base" in needs["image"]


def test_two_are_the_same_and_another_image_has_another_serial_number() -> None:
    lock = make_full_lock()
    assert canonical_json(make_sbom(facts(lock))) == canonical_json(make_sbom(facts(lock)))
    text = canonical_json(make_sbom(facts(lock))).decode()
    assert "timestamp" not in text
    serials = {
        str(make_sbom(one)["serialNumber"])
        for one in (
            facts(lock),
            facts(lock, image=Digest.of(b"other")),
            facts(lock, image_name="team/other"),
            facts(make_lock()),
        )
    }
    assert len(serials) == 4
    assert all(uuid.UUID(one).version == 5 for one in serials)


def test_what_dpkg_says_is_installed() -> None:
    assert installed_debs(STATUS) == (
        InstalledDeb("libc6", "amd64", "1:2.36-9+deb12u14"),
        InstalledDeb("make", "amd64", "4.2-1"),
    )
    assert installed_debs(b"") == installed_debs(b"\xff\0\n\n:::\n") == ()


# -- against the lock ------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    made.prove()
    return made


def bill(world: World) -> dict[str, Any]:
    return make_sbom(world.sbom_facts(facts_of()))


def attach(world: World, document: dict[str, Any], signer: str = "builder") -> Statement:
    made = sign(statement(world.image.digest, SBOM_TYPE, document), key(signer))
    add_referrer(world.image, made)
    return made.statement


def test_a_true_one_is_relied_on(world: World) -> None:
    about = attach(world, bill(world))
    report = world.verify()
    assert report.check(CheckId.SBOM).status is Status.PASSED
    found = report.require().sbom
    assert found is not None
    assert found.statement.digest == about.digest


def test_an_image_without_one_is_verified(world: World) -> None:
    report = world.verify()
    assert report.check(CheckId.SBOM).status is Status.NOT_PERFORMED
    assert report.require().sbom is None


def without_one(document: dict[str, Any]) -> None:
    document["components"].pop()


def with_one_more(document: dict[str, Any]) -> None:
    document["components"].append({**document["components"][-1], "bom-ref": "npm:evil@1.0.0"})


def with_one_twice(document: dict[str, Any]) -> None:
    document["components"].append(document["components"][-1])


def another_hash(document: dict[str, Any]) -> None:
    document["components"][-1]["hashes"][0]["content"] = "0" * 128


def no_hash(document: dict[str, Any]) -> None:
    del document["components"][-1]["hashes"]


def another_version(document: dict[str, Any]) -> None:
    document["components"][-1]["version"] = "9.9.9"


def another_purl(document: dict[str, Any]) -> None:
    document["components"][-1]["purl"] = "pkg:npm/evil@1.0.0"


def another_image(document: dict[str, Any]) -> None:
    document["metadata"]["component"]["hashes"][0]["content"] = "0" * 64


def another_key(document: dict[str, Any]) -> None:
    document["metadata"]["properties"][1]["value"] = "sha256:" + "0" * 64


LIES = (
    without_one,
    with_one_more,
    with_one_twice,
    another_hash,
    no_hash,
    another_version,
    another_purl,
    another_image,
    another_key,
)


@pytest.mark.parametrize("lie", LIES)
def test_a_false_one_by_a_trusted_key_fails(world: World, lie: Callable[[dict[str, Any]], None]) -> None:
    """Also beside a true one: a trusted key that says what is not so is not outweighed."""
    false = json.loads(json.dumps(bill(world)))
    lie(false)
    attach(world, bill(world))
    attach(world, false)
    report = world.verify()
    assert report.check(CheckId.SBOM).status is Status.FAILED
    assert not report.ok


def change(document: dict[str, Any], name: str, value: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(document))
    for one in made["metadata"]["properties"]:
        if one["name"] == name:
            one["value"] = value
    return made


def test_one_of_another_lock_does_not_count(world: World) -> None:
    attach(world, change(bill(world), SBOM_LOCK, str(lock_digest(make_full_lock()))))
    assert world.verify().check(CheckId.SBOM).status is Status.NOT_PERFORMED


def test_one_by_a_stranger_or_under_another_builder_id_does_not_count(world: World) -> None:
    attach(world, bill(world), signer="stranger")
    attach(world, change(bill(world), SBOM_BUILDER, "urn:uuid:somebody-else"))
    twice = json.loads(json.dumps(bill(world)))
    twice["metadata"]["properties"] += [{"name": SBOM_BUILDER, "value": "urn:uuid:somebody-else"}]
    attach(world, twice)
    report = world.verify()
    assert report.check(CheckId.SBOM).status is Status.NOT_PERFORMED
    assert len(report.ignored) == 3
    assert report.ok


def test_a_verifiers_key_signs_none(world: World) -> None:
    attach(world, bill(world), signer="verifier")
    assert world.verify().check(CheckId.SBOM).status is Status.NOT_PERFORMED


def test_a_policy_can_leave_it_out(world: World) -> None:
    attach(world, bill(world))
    kinds = '["https://slsa.dev/provenance/v1", "https://agent-image-builder.example/scan/v1",'
    kinds += ' "https://agent-image-builder.example/detection/v1"]'
    trust = TRUST.replace('key = "keys/builder.pub"', f'key = "keys/builder.pub"\npredicate_types = {kinds}')
    report = world.with_policy(trust=trust).verify()
    assert report.check(CheckId.SBOM).status is Status.NOT_PERFORMED
    assert report.ok


def test_one_that_cannot_be_read_by_a_trusted_key_fails(world: World) -> None:
    attach(world, {**bill(world), "specVersion": "1.4"})
    report = world.verify()
    assert report.check(CheckId.PREDICATE).status is Status.FAILED
