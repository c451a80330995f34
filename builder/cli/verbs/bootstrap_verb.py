"""`builder bootstrap`: make base, build container and resolver, or pull those that settings.toml gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from builder.bootstrap import LOCK_NAME, Host, bootstrap, relock
from builder.bootstrap.network import with_network
from builder.cli.documents.host import BootstrapDocument, BootstrapOutputDocument, ToolImagesDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop
from builder.init import find_ca_bundle
from builder.providing import missing_roles, provide, reference, take_from
from builder.roles import Role
from builder.workshop import Workshop, given_image, tool_digest
from images.errors import UsageError

# Package clients read their own settings, certificates and caches from these.
HOST_ENVIRONMENT_PREFIXES = ("PIP_", "GO", "SSL_", "REQUESTS_", "CURL_", "HTTP", "http", "https", "no_proxy")
HOST_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "NO_PROXY", "ALL_PROXY", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")


def run(invocation: Invocation) -> Result[BootstrapDocument | BootstrapOutputDocument]:
    """The three digests; with ``--refresh`` the lock is resolved again first, into the state."""
    workshop = open_workshop(invocation)
    with workshop.at_work():
        return _bootstrap(invocation, workshop)


def _bootstrap(
    invocation: Invocation, workshop: Workshop
) -> Result[BootstrapDocument | BootstrapOutputDocument]:
    if invocation.options.output is not None:
        return _refresh_to(invocation, workshop, invocation.options.output)
    if invocation.options.source is not None:
        take_from(workshop, invocation.options.source)
    with invocation.reporter.step("bootstrap"):
        _make(invocation, workshop)
        for role in Role:
            if given_image(workshop.settings, role) is not None:
                provide(workshop, role)
    digests = {role: str(tool_digest(workshop, role)) for role in Role}
    for role, digest in digests.items():
        invocation.reporter.say(f"{role.replace('-', ' ')}: {digest}")
    return Result(
        line=str(reference(workshop, Role.BASE)),
        document=BootstrapDocument(images=_images(digests)),
    )


def _refresh_to(invocation: Invocation, workshop: Workshop, output: Path) -> Result[BootstrapOutputDocument]:
    """Resolve all three images' pins into a file of the operator's; what this state uses stays as it is."""
    if not invocation.options.refresh:
        raise UsageError("--output is for --refresh", hint=f"builder bootstrap --refresh --output {output}")
    with invocation.reporter.step("bootstrap"):
        done = relock(workshop.state.layout, _connected_host(invocation, workshop), output=output)
    digests = {role: str(done.lock.pins(role).manifest) for role in Role}
    return Result(
        line=str(output),
        document=BootstrapOutputDocument(lock=str(output), images=_images(digests)),
    )


def _images(digests: Mapping[Role, str]) -> ToolImagesDocument:
    return ToolImagesDocument(
        base=digests[Role.BASE],
        build_container=digests[Role.BUILD_CONTAINER],
        resolver=digests[Role.RESOLVER],
    )


def _make(invocation: Invocation, workshop: Workshop) -> None:
    """Only what settings.toml does not give: a resolver alone compiles nothing."""
    roles = missing_roles(workshop)
    if not roles:
        return
    state = workshop.state
    host = _connected_host(invocation, workshop)
    copy = state.bootstrap / LOCK_NAME
    if invocation.options.refresh:
        relock(state.layout, host, output=copy, roles=roles)
    bootstrap(state.layout, host, lock_copy=copy, roles=roles)


def _connected_host(invocation: Invocation, workshop: Workshop) -> Host:
    """With the proxy and the authorities of settings.toml: only what fetches needs the files it names."""
    return with_network(bootstrap_host(invocation, workshop), workshop.settings, find_ca_bundle())


def bootstrap_host(invocation: Invocation, workshop: Workshop) -> Host:
    """The host's package clients, with what they may know of our environment."""
    return Host(
        environment={
            name: value
            for name, value in invocation.environment.items()
            if name in HOST_ENVIRONMENT or name.startswith(HOST_ENVIRONMENT_PREFIXES)
        },
        cache=workshop.state.bootstrap,
        progress=invocation.reporter.say,
    )
