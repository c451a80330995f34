"""`builder build`: build, scan, detect, sign; print the digest."""

from __future__ import annotations

from importlib.metadata import version

from builder.building.pipeline import BuildRequest, build
from builder.cli.invocation import Invocation, Result
from builder.cli.platform import host_platform
from builder.cli.session import key_of, open_workshop, policy_of
from builder.locking import open_project
from images.errors import UsageError
from provenance.attest import signer_id
from provenance.policy_model import Role


def run(invocation: Invocation) -> Result:
    """One line: the digest of this platform's manifest."""
    project = open_project(invocation.options.config)
    platform = host_platform()
    if platform not in project.config.platforms:
        raise UsageError(
            f"builder.toml declares no {platform}, and an image is built on its own platform only",
            where="image.platforms",
            hint=f'add "{platform}" to image.platforms, then builder lock',
        )
    signer = key_of(invocation, Role.BUILDER)
    policy = policy_of(invocation, beside=project.config_path.resolve().parent)
    result = build(
        open_workshop(invocation),
        BuildRequest(
            project=project,
            platform=platform,
            signer=signer,
            builder_id=signer_id(policy, Role.BUILDER, signer),
            version=version("agent-image-builder"),
            policy=policy,
            now=invocation.now,
            fresh=invocation.options.no_cache,
        ),
    )
    return Result(
        line=str(result.digest),
        document={
            "digest": str(result.digest),
            "key": str(result.key),
            "lock": str(result.lock),
            "platform": str(platform),
            "reused": result.reused,
        },
    )
