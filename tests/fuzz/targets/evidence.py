"""What is signed, and what is in a predicate: by a stranger, and by a thief of the builder's key."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.hashes import SHA256

from images.digests import Digest
from images.errors import VerifyFailed
from provenance.attestation_documents import npm_bundles, pypi_bundles
from provenance.bundles import open_bundle, write_bundle
from provenance.evidence import Evidence, sort_evidence
from provenance.keyless import open_keyless
from provenance.keys import PrivateKey
from provenance.pkcs11_request import TokenAnswer, read_token_answer
from provenance.predicates import (
    DETECTION_TYPE,
    LAUNCH_TYPE,
    PROVENANCE_TYPE,
    SBOM_TYPE,
    SCAN_TYPE,
    VSA_TYPE,
    DetectionPredicate,
    ProvenancePredicate,
    ScanPredicate,
    VsaPredicate,
    read_predicate,
)
from provenance.referrers import Attached
from provenance.sigstore_root import SigstoreRoot
from provenance.statements import PAYLOAD_TYPE, parse_statement
from tests.fakes.evidence import key
from tests.fakes.policies import BUILDER_ID
from tests.fakes.proved import NOW, World, make_world
from tests.fakes.sigstores import Sigstore, npm_document, npm_statement, pypi_document, statement
from tests.fuzz.mutate_bytes import change_bytes, mutate_bytes
from tests.fuzz.mutate_json import change_tree, mutate_json, read, write
from tests.fuzz.target import Dice, Ready, law, target

_MODELS: Final = {
    PROVENANCE_TYPE: ProvenancePredicate,
    SCAN_TYPE: ScanPredicate,
    DETECTION_TYPE: DetectionPredicate,
    VSA_TYPE: VsaPredicate,
}


class Ignored(Exception):
    """The bundle was put aside; the image is as if it were not there."""


def sign_again(payload: bytes, signer: PrivateKey, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """A right signature over any payload, the same each time."""
    kind = payload_type.encode()
    pae = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    signature = signer.key.sign(pae, ECDSA(SHA256(), deterministic_signing=True))
    return write_bundle(payload, payload_type, signature, signer.public.hint)


def payloads(world: World) -> dict[str, bytes]:
    """The statements of a build."""
    return {name: bundle.statement.raw for name, bundle in world.bundles().items()}


def judged(world: World, data: bytes) -> Evidence:
    """One bundle, attached to the image."""
    attached = Attached("bundle", world.image.digest, data)
    return sort_evidence([attached], world.image.digest, world.policy, NOW)


@target(mutate_json, refusals=(Ignored,))
def bundle_of_a_stranger(folder: Path) -> Ready:
    """A signed bundle that somebody without a key changed: it counts with the signed words alone."""
    world = make_world(folder)
    said = payloads(world)
    originals = frozenset(said.values())

    def look(data: bytes) -> object:
        found = judged(world, data)
        if not found.accepted:
            raise Ignored(found.rejected[0].why)
        (one,) = found.accepted
        law(one.bundle.statement.raw in originals, "another statement than the signed one was accepted")
        law(one.bundle.signer == key("builder").public.fingerprint, "signed by another key")
        return one.digest

    return Ready(tuple(sign_again(raw, key("builder")) for raw in said.values()), look)


@target(mutate_bytes, refusals=(Ignored,))
def bundle_with_changed_bytes(folder: Path) -> Ready:
    """The same by bits and bytes."""
    return bundle_of_a_stranger(folder)


def mutate_payload(dice: Dice, seeds: Sequence[bytes]) -> bytes:
    """What is signed is changed, and signed again: the reader below has a stolen key."""
    data = dice.choice(seeds)
    if dice.random() < 0.1:
        return change_bytes(dice, data)
    tree = read(data)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        tree = change_tree(dice, tree)
    return write(tree).encode("utf-8", "surrogatepass")


@target(mutate_payload, share=0.6, refusals=(Ignored,))
def statement_of_a_thief(folder: Path) -> Ready:
    """Whoever stole the builder's key can say what he likes, in one form, of this image, as builder."""
    world = make_world(folder)
    said = payloads(world)

    def look(payload: bytes) -> object:
        found = judged(world, sign_again(payload, key("builder")))
        if not found.accepted:
            raise Ignored(found.rejected[0].why)
        (one,) = found.accepted
        document = json.loads(payload, object_pairs_hook=_no_key_twice)
        law(document["_type"] == "https://in-toto.io/Statement/v1", "a statement of another type")
        law(document["subject"][0]["digest"] == {"sha256": world.image.digest.hex}, "another subject")
        law(len(document["subject"]) == 1, "two subjects")
        kind = document["predicateType"]
        law(kind in (PROVENANCE_TYPE, SCAN_TYPE, DETECTION_TYPE, SBOM_TYPE), "not for a builder to say")
        if kind == SBOM_TYPE:  # a form that is not ours, and names no builder
            return one.digest
        builder = document["predicate"]
        builder = builder["runDetails"]["builder"] if kind == PROVENANCE_TYPE else builder["builder"]
        law(builder["id"] == BUILDER_ID, "a builder id that is not paired with the key")
        return one.digest

    return Ready(tuple(said.values()), look)


def _no_key_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    law(len({key for key, _ in pairs}) == len(pairs), "a key that is there twice was accepted")
    return dict(pairs)


@target(mutate_payload, share=0.15, refusals=(Ignored,))
def whole_verification(folder: Path) -> Ready:
    """A thief's statement in place of the builder's, judged by all checks: it never makes an approval."""
    world = make_world(folder)
    said = payloads(world)
    others = {name: sign_again(raw, key("builder")) for name, raw in said.items()}

    def look(payload: bytes) -> object:
        from tests.fakes.evidence import attach_raw  # noqa: PLC0415

        index = (world.layout / "index.json").read_bytes()
        try:
            kind = _kind(payload)
            for name, data in others.items():
                attach_raw(
                    world.layout,
                    world.image.digest,
                    sign_again(payload, key("builder")) if name == kind else data,
                )
            report = world.verify()
            law(not world.admit().ok, "admitted without the verifier")
        finally:
            (world.layout / "index.json").write_bytes(index)
        if not report.ok:
            raise Ignored
        return report.digest

    world.prove(without=("provenance", "scan", "detection"))
    return Ready(tuple(said.values()), look)


def _kind(payload: bytes) -> str:
    marks = {
        "sbom": b"cyclonedx.org/bom",
        "provenance": b"slsa.dev",
        "scan": b"scan/v1",
        "detection": b"detection/v1",
    }
    for name, mark in marks.items():
        if mark in payload:
            return name
    return "provenance"


@target(mutate_json)
def in_toto_statement(folder: Path) -> Ready:
    """A Statement v1 and its predicate; what is unknown in it is ignored, what is wrong is refused."""
    world = make_world(folder)
    seeds = [*payloads(world).values()]

    def look(raw: bytes) -> object:
        found = parse_statement(raw, "statement")
        law(found.raw == raw and found.digest == Digest.of(raw), "the bytes were not kept")
        if found.is_only_about(world.image.digest):
            law(found.is_about(world.image.digest), "only about it, and not about it")
        model = _MODELS.get(found.predicate_type)
        return read_predicate(model, found.predicate_json, "predicate") if model else found

    return Ready(seeds, look)


@target(mutate_json, share=3)
def launch_record(folder: Path) -> Ready:
    """A record of a launch, as `builder show` reads it out of the journal."""
    image = Digest.of(b"image")
    record = {
        "launcher": {"id": "urn:x"},
        "run": {"id": "run", "step": 1},
        "exitCode": None,
        "ending": "completed",
    }
    raw = json.dumps(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": "_", "digest": {"sha256": image.hex}}],
            "predicateType": LAUNCH_TYPE,
            "predicate": record,
        }
    ).encode()

    def look(data: bytes) -> object:
        return parse_statement(open_bundle(data, "record").payload, "record")

    return Ready((sign_again(raw, key("launcher")),), look)


def _keyless(folder: Path) -> tuple[Sigstore, SigstoreRoot]:
    sigstore = Sigstore()
    return sigstore, SigstoreRoot(sigstore.trusted_root(), "root.json")


@target(mutate_json, share=0.6)
def keyless_bundle(folder: Path) -> Ready:
    """A bundle that a certificate signed: no change of it verifies to other words or another signer."""
    sigstore, root = _keyless(folder)
    payload = npm_statement("a", "1.0.0", "0" * 128)
    seed = json.dumps(sigstore.bundle(payload)).encode()
    signer = open_keyless(seed, root, "bundle").signer

    def look(raw: bytes) -> object:
        found = open_keyless(raw, root, "bundle")
        law((found.payload, found.signer) == (payload, signer), "another statement or signer was accepted")
        return found

    return Ready((seed,), look)


@target(mutate_json, share=0.6)
def keyless_trusted_root(folder: Path) -> Ready:
    """A root that was changed never makes the same bundle another's."""
    sigstore, root = _keyless(folder)
    payload = statement()
    bundle = json.dumps(sigstore.bundle(payload)).encode()
    signer = open_keyless(bundle, root, "bundle").signer

    def look(raw: bytes) -> object:
        found = open_keyless(bundle, SigstoreRoot(raw, "root.json"), "bundle")
        law((found.payload, found.signer) == (payload, signer), "another statement or signer was accepted")
        return found

    return Ready((root.raw,), look)


@target(mutate_json)
def token_answer(folder: Path) -> Ready:
    """Of a process that loaded a token's library."""
    answer = TokenAnswer(public_key=b"key", signatures=(b"one", b"two"), what="what it was")
    return Ready((answer.to_json(),), read_token_answer)


def _documents(wrap: Callable[..., dict[str, object]]) -> bytes:
    sigstore = Sigstore()
    return json.dumps(wrap(sigstore.bundle(npm_statement("a", "1.0.0", "0" * 128)))).encode()


@target(mutate_json)
def npm_attestations(folder: Path) -> Ready:
    """npm's document of attestations."""
    return Ready((_documents(npm_document),), lambda raw: npm_bundles(raw, "a@1.0.0"))


@target(mutate_json)
def pypi_attestations(folder: Path) -> Ready:
    """PyPI's provenance object."""
    seed = _documents(pypi_document)
    return Ready((seed,), lambda raw: pypi_bundles(raw, "a@1.0.0"))


@target(mutate_bytes, share=3)
def bundle_payload(folder: Path) -> Ready:
    """The base64 of a payload has one spelling."""
    raw = base64.b64encode(b'{"a": "payload"}' * 3)

    def look(data: bytes) -> object:
        try:
            text = data.decode("ascii")
        except UnicodeDecodeError:
            raise VerifyFailed("no text") from None
        document = {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"publicKey": {"hint": ""}, "tlogEntries": []},
            "dsseEnvelope": {"payload": text, "payloadType": "x", "signatures": [{"sig": "AAAA"}]},
        }
        found = open_bundle(json.dumps(document).encode(), "bundle")
        law(base64.b64encode(found.payload) == data, "two spellings of one payload")
        return found

    return Ready((raw,), look)
