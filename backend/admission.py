"""Admit a verified image to an engine: find every reason against it; refuse, accept by name, or note each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from backend.containers import EngineFacts, ImageIdKind
from backend.probe import HostProbe, ProbeLine, ProbeName, ProbeState
from backend.projection.integrations import Integrations, integrations_of, wishes_unmet
from images.errors import LaunchReason, LaunchRefused
from images.oci import OciImage, Platform
from provenance.checks import CheckId, Status
from provenance.policy import Acceptance, Mode, Policy
from provenance.policy_model import ACCEPTABLE
from provenance.verify import Purpose, VerifiedImage

# What development mode lives with; each use is a note in the record. No mode skips proof of the image.
DEVELOPMENT_ALLOWS: Final = frozenset(
    {
        LaunchReason.ENGINE_MODE,
        LaunchReason.KEYS_READABLE,
        LaunchReason.NO_EXPECTATION,
        LaunchReason.UNPINNED_BASE,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason against a launch; ``hint`` is the way on."""

    reason: LaunchReason
    what: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedImage:
    """Permit: a verified image that this policy lets run on this probed engine. Constructed only here.

    ``accepted``: what the policy lives with by name, where it was needed. ``notes``: what development mode
    let pass. ``limits_enforced``: whether this host binds CPU, memory and process limits. ``shared_files``:
    whether the engine was proved to see the files that we see. ``integrations``: the MCP servers and Skills
    that the policy turns on, each found in the image's lock. ``rehash_store``: whether the policy wants what
    the engine's store holds hashed again.
    """

    verified: VerifiedImage
    mode: Mode
    facts: EngineFacts
    id_kind: ImageIdKind
    limits_enforced: bool
    shared_files: bool
    integrations: Integrations
    rehash_store: bool
    accepted: tuple[Acceptance, ...]
    notes: tuple[str, ...]

    @property
    def image(self) -> OciImage:
        """The image itself."""
        return self.verified.image

    @property
    def agents(self) -> tuple[tuple[str, str], ...]:
        """Name and version of each agent in the image, as locked and detected."""
        return tuple((agent.name.value, agent.version) for agent in self.verified.lock.agents)


def admit(
    verified: VerifiedImage,
    policy: Policy,
    probe: HostProbe,
    *,
    facts: EngineFacts,
    platform: Platform,
    host: tuple[ProbeLine, ...],
) -> AdmittedImage:
    """The permit, or LaunchRefused with the first reason and the number of others.

    ``facts``: of the engine that will launch, asked now. ``platform``: this machine's.
    ``host``: what :func:`backend.host.look_at_host` answered now.
    """
    findings = assess(verified, policy, probe, facts=facts, platform=platform, host=host)
    accepted: dict[LaunchReason, Acceptance] = {}
    notes, refused = [], []
    for finding in findings:
        acceptance = policy.accepts(finding.reason) if finding.reason in ACCEPTABLE else None
        if acceptance is not None:
            accepted[finding.reason] = acceptance
        elif policy.mode is Mode.DEVELOPMENT and finding.reason in DEVELOPMENT_ALLOWS:
            notes.append(f"{finding.reason.value}: {finding.what}")
        else:
            refused.append(finding)
    if refused:
        first, others = refused[0], len(refused) - 1
        more = f" ({others} more against it: {', '.join(sorted({f.reason.value for f in refused[1:]}))})"
        raise LaunchRefused(
            first.reason,
            first.what + (more if others else ""),
            where=str(verified.image.digest),
            hint=first.hint,
        )
    return AdmittedImage(
        verified=verified,
        mode=policy.mode,
        facts=facts,
        id_kind=probe.id_kind,
        limits_enforced=probe.limits_enforced,
        shared_files=probe.held(ProbeName.SHARED_FILES),
        integrations=integrations_of(policy.enable, verified.lock, verified.image.platform),
        rehash_store=policy.rehash_store,
        accepted=tuple(accepted.values()),
        notes=tuple(notes),
    )


def assess(
    verified: VerifiedImage,
    policy: Policy,
    probe: HostProbe,
    *,
    facts: EngineFacts,
    platform: Platform,
    host: tuple[ProbeLine, ...],
) -> tuple[Finding, ...]:
    """Everything that speaks against a launch, whatever the policy makes of it; for ``run --dry-run`` too."""
    return (
        *_of_the_image(verified, policy, platform),
        *_of_the_engine(probe, facts),
        *_of_the_host(host),
    )


def _of_the_image(verified: VerifiedImage, policy: Policy, platform: Platform) -> Iterable[Finding]:
    digest = verified.image.digest
    if verified.purpose is not Purpose.ADMISSION or verified.summary is None:
        yield Finding(
            LaunchReason.NOT_VERIFIED,
            "no verifier has signed a summary for this image",
            f"builder verify {digest} --attest",
        )
    if verified.policy.digest != policy.digest:
        yield Finding(
            LaunchReason.POLICY, "verified under another policy than this one", f"builder verify {digest}"
        )
    parameters = next((one for one in verified.checks if one.id is CheckId.PARAMETERS), None)
    if parameters is None or parameters.status is not Status.PASSED:
        yield Finding(
            LaunchReason.NO_EXPECTATION,
            "nothing says which lock this image must come from",
            "name its builder.toml, give --lock FILE, or add it to [expect] in policy.toml",
        )
    if not verified.lock.base.pinned:
        yield Finding(
            LaunchReason.UNPINNED_BASE,
            f"its base {verified.lock.base.name} was named by a tag, not by a digest",
            'write base = "name@sha256:…" in builder.toml, then builder lock',
        )
    if verified.image.platform != platform:
        yield Finding(
            LaunchReason.PLATFORM,
            f"the image is for {verified.image.platform}, this machine is {platform}",
            "add this platform to builder.toml and build here",
        )
    for reason, what in wishes_unmet(policy.enable, verified.lock):
        yield Finding(reason, what, "correct [enable] in policy.toml, or choose an image that has it")


def _of_the_engine(probe: HostProbe, facts: EngineFacts) -> Iterable[Finding]:
    if probe.facts != facts:
        yield Finding(
            LaunchReason.ENGINE_IDENTITY,
            f"{facts.product} {facts.version} at {facts.endpoint} is not the engine that was probed",
            "builder doctor",
        )
    for line in probe.not_held:
        yield Finding(line.reason, f"{line.name.value}: {line.detail}", line.remedy or "builder doctor")


def _of_the_host(lines: tuple[ProbeLine, ...]) -> Iterable[Finding]:
    for line in lines:
        if line.state not in (ProbeState.HELD, ProbeState.NOTED):
            yield Finding(line.reason, f"{line.name.value}: {line.detail}", line.remedy or "builder doctor")
