"""`builder bootstrap`: make base, build container and resolver, or pull those that settings.toml gives."""

from __future__ import annotations

from builder.bootstrap import LOCK_NAME, Host, Role, bootstrap, relock
from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop
from builder.providing import missing_roles, provide, reference, take_from
from builder.workshop import Workshop, given_image, tool_digest

# Package clients read their own settings, certificates and caches from these.
HOST_ENVIRONMENT_PREFIXES = ("PIP_", "GO", "SSL_", "REQUESTS_", "CURL_", "HTTP", "http", "https", "no_proxy")
HOST_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "NO_PROXY", "ALL_PROXY", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")


def run(invocation: Invocation) -> Result:
    """The three digests; with ``--refresh`` the lock is resolved again first, into the state."""
    workshop = open_workshop(invocation)
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
        document={"images": {role.replace("-", "_"): digest for role, digest in digests.items()}},
    )


def _make(invocation: Invocation, workshop: Workshop) -> None:
    """Only what settings.toml does not give: a resolver alone compiles nothing."""
    roles = missing_roles(workshop)
    if not roles:
        return
    state = workshop.state
    host = Host(
        environment={
            name: value
            for name, value in invocation.environment.items()
            if name in HOST_ENVIRONMENT or name.startswith(HOST_ENVIRONMENT_PREFIXES)
        },
        cache=state.bootstrap,
        progress=invocation.reporter.say,
    )
    copy = state.bootstrap / LOCK_NAME
    if invocation.options.refresh:
        relock(state.layout, host, output=copy, roles=roles)
    bootstrap(state.layout, host, lock_copy=copy, roles=roles)
