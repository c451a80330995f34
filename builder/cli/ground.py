"""What a launch stands on: which image, under which policy, by whom; and the image once it is admitted."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

from backend.admission import AdmittedImage
from backend.engines.protocol import Engine
from builder.cli.invocation import Invocation
from builder.cli.platform import host_platform
from builder.cli.session import key_of, policy_of, role_keys
from builder.launching import Launcher, admit_image, verify_for_launch
from builder.verifying import Chosen, Verification, choose_image
from builder.workshop import Workshop
from provenance.attest import signer_id
from provenance.policy import Policy
from provenance.policy_model import Role
from provenance.verify import Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Found by words alone; nothing is proved yet."""

    chosen: Chosen
    policy: Policy
    launcher: Launcher


def find_ground(invocation: Invocation, workshop: Workshop) -> Ground:
    """The image that is asked for, which is printed; the policy; the launcher and its key."""
    options, platform = invocation.options, host_platform()
    chosen = choose_image(workshop.state, options.image, options.lock, platform, invocation.working_dir)
    policy = policy_of(invocation, beside=chosen.project_dir)
    by = f" (built from {chosen.project.lock_path.name}, key {chosen.key})" if chosen.project else ""
    invocation.reporter.say(f"image: {chosen.digest}{by}")
    signer = key_of(invocation, Role.LAUNCHER)
    launcher = Launcher(
        platform=platform,
        signer=signer,
        launcher_id=signer_id(policy, Role.LAUNCHER, signer.public.fingerprint),
        version=version("agent-image-builder"),
        role_keys=role_keys(invocation),
        now=invocation.now,
    )
    return Ground(chosen=chosen, policy=policy, launcher=launcher)


def admitted_here(invocation: Invocation, workshop: Workshop, ground: Ground) -> tuple[Engine, AdmittedImage]:
    """Verified, and admitted on the engine of this invocation. Raises LaunchRefused."""
    what = Verification(
        state=workshop.state,
        policy=ground.policy,
        purpose=Purpose.ADMISSION,
        platform=ground.launcher.platform,
        now=invocation.now,
    )
    with workshop.at_work():
        with invocation.reporter.step("verify for launch"):
            verified = verify_for_launch(ground.chosen, what)
        engine = workshop.connect()
        return engine, admit_image(workshop, engine, verified, ground.policy, ground.launcher)
