"""One module per verb; each has ``run(invocation) -> Result[…]``. Imported when used: start-up is short."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from builder.cli.documents import Document
from builder.cli.invocation import Invocation, Result

VERBS = (
    "init",
    "lock",
    "build",
    "verify",
    "run",
    "show",
    "doctor",
    "bootstrap",
    "scan",
    "sbom",
    "export",
    "policy",
    "outdated",
    "diff",
    "push",
    "pull",
    "store",
    "gc",
    "ps",
    "runs",
    "reap",
    "logs",
    "login",
    "logout",
    "sessions",
    "completion",
)
# Commands of a command.
ACTS = {"store": ("add", "export", "import")}


class _Verb(Protocol):
    def run(self, invocation: Invocation) -> Result[Document]: ...


def perform(invocation: Invocation) -> Result[Document]:
    """Run the verb that the command line named."""
    module = cast(_Verb, import_module(f"{__name__}.{invocation.command}_verb"))
    return module.run(invocation)
