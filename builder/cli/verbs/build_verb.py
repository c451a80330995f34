"""`builder build`: build, scan, detect, sign; print the digest."""

from __future__ import annotations

from importlib.metadata import version

from builder.building.pipeline import MEMORY_KEY, BuildRequest, build
from builder.cli.documents.built import BuiltDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.platform import host_platform
from builder.cli.session import open_workshop, policy_of
from builder.cli.signing import signer_of
from builder.locking import open_project
from builder.registry.reference import parse_reference
from images.config import BaseReference
from images.errors import UsageError
from provenance.attest import signer_id
from provenance.policy_model import Role


def run(invocation: Invocation) -> Result[BuiltDocument]:
    """One line: the digest of this platform's manifest."""
    project = open_project(invocation.options.config)
    platform = host_platform()
    if platform not in project.config.platforms:
        raise UsageError(
            f"builder.toml declares no {platform}, and an image is built on its own platform only",
            where="image.platforms",
            hint=f'add "{platform}" to image.platforms, then builder lock',
        )
    policy = policy_of(invocation, beside=project.config_path.resolve().parent)
    if policy.valid_until < invocation.now():
        # It is signed all the same: policy judges who launches, and there it is renewed.
        invocation.reporter.warn(
            f"the policy ended on {policy.valid_until:%Y-%m-%d}: this image cannot be launched under it"
            f" (renew valid_until and serial in {policy.path})"
        )
    with signer_of(invocation, Role.BUILDER, policy) as signer:
        request = BuildRequest(
            project=project,
            platform=platform,
            signer=signer,
            builder_id=signer_id(policy, Role.BUILDER, signer.who),
            version=version("agent-image-builder"),
            policy=policy,
            now=invocation.now,
            memory_key=invocation.config_dir / MEMORY_KEY,
            fresh=invocation.options.no_cache,
            cache=_cache(invocation.options.cache),
        )
        result = build(open_workshop(invocation), request)
    return Result(
        line=str(result.digest),
        document=BuiltDocument(
            digest=str(result.digest),
            key=str(result.key),
            lock=str(result.lock),
            platform=str(platform),
            reused=result.reused,
        ),
    )


def _cache(words: str | None) -> BaseReference | None:
    if words is None:
        return None
    found = parse_reference(words)
    if found.tag or found.digest:
        raise UsageError("a cache is a repository", where=f"--cache {found}", hint=f"--cache {found.name}")
    return found
