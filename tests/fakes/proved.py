"""One small image with everything that proves it, made by the product's own code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from images.credentials import RULESET_VERSION
from images.digests import Digest
from images.key import summarise
from images.lock import BaseImage, BaseLock, Lock
from images.lockfile import lock_bytes, lock_digest
from images.oci import OciImage
from provenance.attest import Attestation, attest
from provenance.expectations import Expectation
from provenance.layout import open_image
from provenance.layout_writing import init_layout
from provenance.policy import Policy, load_policy
from provenance.referrers import add_lock, add_referrer
from provenance.sbom import SbomFacts, make_sbom
from provenance.scan.accept import CleanImage, accept
from provenance.scan.report import BlobCoverage, ScanReport
from provenance.signing import Bundle, KeySigner, sign
from provenance.statements import (
    BuildFacts,
    DetectedAgent,
    DetectedImage,
    detection_statement,
    provenance_statement,
    sbom_statement,
    scan_statement,
)
from provenance.verify import Purpose, VerificationReport, VerifyRequest, verify
from tests.fakes.evidence import key
from tests.fakes.layouts import make_image
from tests.fakes.locks import AMD64, make_lock
from tests.fakes.policies import BUILDER_ID, policy_for

NAME = "team/agents"
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
BUILT = datetime(2026, 11, 29, 10, tzinfo=UTC)
BASE_FILES = {"etc/passwd": b"root:x:0:0::/:/bin/sh\n"}
CONFIG: dict[str, object] = {
    "User": "1000:1000",
    "Entrypoint": ["/usr/bin/catatonit", "--"],
    "Cmd": ["/bin/sh"],
}


def lock_on(base: OciImage) -> Lock:
    """The test lock, on this real base."""
    image = BaseImage(
        AMD64, base.digest, base.manifest.config.digest, base.manifest.layers, base.settings.diff_ids
    )
    return replace(make_lock(), base=BaseLock("debian-minimal", "", True, base.digest, None, (image,)))


def facts_of(builder_id: str = BUILDER_ID, *, name: str = NAME, built: datetime = BUILT) -> BuildFacts:
    """Who built, and when."""
    return BuildFacts(
        image_name=name,
        builder_id=builder_id,
        builder_version="0.1.0",
        started=built,
        finished=built,
        invocation="urn:uuid:00000000-0000-4000-8000-0000000000aa",
    )


def report_on(image: OciImage, **changes: Any) -> ScanReport:
    """A clean and complete scan."""
    report = ScanReport(
        subject=str(image.digest),
        ruleset=RULESET_VERSION,
        ruleset_digest=Digest.of(b"rules"),
        engine="test 1",
        coverage=tuple(
            BlobCoverage(str(layer.digest), "layer", 10, 10, 1) for layer in image.manifest.layers
        ),
        findings=(),
        cleared=(),
        opened=0,
        opened_bytes=0,
        opaque=(),
        opaque_count=2,
        incomplete=(),
    )
    return replace(report, **changes)


def detected(clean: CleanImage, lock: Lock) -> DetectedImage:
    """Every agent of the lock reports its version."""
    return DetectedImage(
        clean=clean,
        agents=tuple(
            DetectedAgent(str(agent.name), agent.version, agent.version, 0, Digest.of(agent.version.encode()))
            for agent in lock.agents
        ),
        uid=lock.user.uid,
        gid=lock.user.gid,
        root_behaviour=("claude-code: refused as root",),
        engine="test engine 1",
        hardening=("cap-drop=ALL",),
    )


@dataclass
class World:
    """An image, its lock, and what a verifier is given. Nothing is attached before ``prove``."""

    root: Path
    layout: Path
    image: OciImage
    base: OciImage
    lock: Lock
    policy: Policy
    expectation: Expectation = field(default_factory=lambda: Expectation(image_name=NAME))

    @property
    def raw_lock(self) -> bytes:
        return lock_bytes(self.lock)

    def bundles(self, facts: BuildFacts | None = None, signer: str = "builder") -> dict[str, Bundle]:
        """The four statements of a build, signed."""
        facts = facts or facts_of()
        clean = accept(report_on(self.image), self.image)
        seen = detected(clean, self.lock)
        return {
            "provenance": sign(provenance_statement(seen, summarise(self.lock, AMD64), facts), key(signer)),
            "scan": sign(scan_statement(clean, facts), key(signer)),
            "detection": sign(detection_statement(seen, facts), key(signer)),
            "sbom": sign(sbom_statement(seen, make_sbom(self.sbom_facts(facts))), key(signer)),
        }

    def sbom_facts(self, facts: BuildFacts) -> SbomFacts:
        """What its bill of materials is made of."""
        return SbomFacts(
            image=self.image.digest,
            image_name=facts.image_name,
            platform=AMD64,
            lock=self.lock,
            key=summarise(self.lock, AMD64).key,
            builder_id=facts.builder_id,
            version=facts.builder_version,
        )

    def prove(
        self, facts: BuildFacts | None = None, *, without: tuple[str, ...] = (), sbom: bool = False
    ) -> dict[str, Bundle]:
        """Attach the lock and the statements; without a bill of materials, which no image needs."""
        add_lock(self.image, self.raw_lock)
        made = self.bundles(facts)
        for name, bundle in made.items():
            if name not in without and (sbom or name != "sbom"):
                add_referrer(self.image, bundle)
        return made

    def verify(self, **changes: Any) -> VerificationReport:
        """Verify the image as it lies there."""
        request = VerifyRequest(
            layout=self.layout,
            digest=self.image.digest,
            platform=AMD64,
            policy=self.policy,
            expectation=self.expectation,
            now=NOW,
        )
        return verify(replace(request, **changes))

    def attest(self) -> Attestation:
        """Sign a summary of a verification, and attach it when it passed."""
        made = attest(self.verify(), self.policy, KeySigner(key("verifier")), version="0.1.0", now=NOW)
        if made.passed:
            add_referrer(self.image, made.bundle)
        return made

    def admit(self, **changes: Any) -> VerificationReport:
        """Verify for admission."""
        return self.verify(purpose=Purpose.ADMISSION, **changes)

    def with_policy(self, edit: Callable[[str], str] = lambda text: text, **changes: Any) -> World:
        """The same world under another policy."""
        given: dict[str, Any] = {"base": self.base.digest, "expect": {NAME: lock_digest(self.lock)}}
        policy = policy_for(self.root / "config", **(given | changes))
        if edit(text := policy.path.read_text()) != text:
            policy.path.write_text(edit(text))
            policy = load_policy(policy.path)
        return replace(self, policy=policy)


def make_world(root: Path) -> World:
    """An image of two layers on a base of one, not proved yet."""
    layout = root / "layout"
    init_layout(layout)
    base = open_image(layout, make_image(layout, (BASE_FILES,), config={}))
    ours = ({"opt/agents/pi/cli.js": b"console.log(1)\n" * 50}, {"workspace/": b""})
    image = open_image(layout, make_image(layout, (BASE_FILES, *ours), config=CONFIG))
    lock = lock_on(base)
    policy = policy_for(root / "config", base=base.digest, expect={NAME: lock_digest(lock)})
    return World(root, layout, image, base, lock, policy)


def proved_world(root: Path) -> World:
    """With lock, statements and a PASSED summary attached."""
    world = make_world(root)
    world.prove()
    assert world.attest().passed
    return world
