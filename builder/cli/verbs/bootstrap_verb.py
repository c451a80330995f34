"""`builder bootstrap`: make base, build container and resolver for machines without a registry."""

from __future__ import annotations

from builder.bootstrap import Host, bootstrap, relock
from builder.cli.invocation import Invocation, Result
from builder.cli.session import state_of

# Package clients read their own settings, certificates and caches from these.
HOST_ENVIRONMENT_PREFIXES = ("PIP_", "GO", "SSL_", "REQUESTS_", "CURL_", "HTTP", "http", "https", "no_proxy")
HOST_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "NO_PROXY", "ALL_PROXY", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")


def run(invocation: Invocation) -> Result:
    """The three digests; with ``--refresh`` the lock is resolved again first, into the state."""
    state = state_of(invocation)
    host = Host(
        environment={
            name: value
            for name, value in invocation.environment.items()
            if name in HOST_ENVIRONMENT or name.startswith(HOST_ENVIRONMENT_PREFIXES)
        },
        cache=state.bootstrap,
        progress=invocation.reporter.say,
    )
    copy = state.bootstrap / "bootstrap.lock"
    with invocation.reporter.step("bootstrap"):
        if invocation.options.refresh:
            relock(state.layout, host, output=copy)
        made = bootstrap(state.layout, host, lock_copy=copy)
    images = {
        "base": str(made.base),
        "build_container": str(made.build_container),
        "resolver": str(made.resolver),
    }
    for name, digest in images.items():
        invocation.reporter.say(f"{name.replace('_', ' ')}: {digest}")
    return Result(line=f"debian-minimal@{made.base}", document={"images": images})
