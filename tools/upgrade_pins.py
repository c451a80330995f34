"""Move the pins of a builder.toml that have vanished upstream to what is newest there, and say so."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import tomlkit

from builder.cli.arguments import parse_arguments
from builder.cli.invocation import make_invocation
from builder.cli.session import open_workshop
from builder.locking import open_project
from builder.providing import open_resolver
from builder.resolve.exchange import Resolver
from builder.resolve.job import Job, RootRequest, perform
from builder.resolve.npm_platform import npm_platform
from images.config import ImageConfig
from images.errors import BuilderError, PinError
from images.lock import NODE_PACKAGES
from images.strictjson import read_object
from provenance.layout_writing import replace_file

# Dotted path, npm package and version of something that builder.toml pins, and what to take when it is gone.
Pin = tuple[str, str, str, str]
Ask = Callable[
    [str, str], str
]  # package and version or range -> the exact version; PinError when there is none


def pins_of(config: ImageConfig) -> tuple[Pin, ...]:
    """The agents move to the newest of all, Node to the newest of its major version."""
    agents = tuple((f"agents.{pin.name}", pin.name.package, pin.version, "latest") for pin in config.agents)
    node = config.node.version
    package = NODE_PACKAGES[config.platforms[0]]
    return (*agents, ("node.version", package, node, node.partition(".")[0]))


def moves(pins: tuple[Pin, ...], ask: Ask) -> dict[str, str]:
    """Dotted path -> new version, for each pin that is gone.

    When every pin is there, something below an agent is gone: then all agents move.
    """
    gone = [pin for pin in pins if not _is_offered(pin, ask)]
    gone = gone or [pin for pin in pins if pin[0].startswith("agents.")]
    newest = {path: ask(package, instead) for path, package, _, instead in gone}
    return {path: newest[path] for path, _, version, _ in gone if newest[path] != version}


def _is_offered(pin: Pin, ask: Ask) -> bool:
    try:
        ask(pin[1], pin[2])
    except PinError:
        return False
    return True


def rewritten(text: str, moved: dict[str, str]) -> str:
    """The same builder.toml, comments and all, with these versions."""
    document = tomlkit.parse(text)
    for path, version in moved.items():
        section, _, key = path.partition(".")
        document[section][key] = version
    return tomlkit.dumps(document)


def asking(resolver: Resolver, config: ImageConfig) -> Ask:
    """Ask npm in the resolver container."""

    def ask(package: str, version: str) -> str:
        label = f"{package}@{version}"
        root = RootRequest(label, package, version, npm_platform(config.platforms[0]))
        (lock,) = perform(Job(resolve=(root,)), resolver).locks
        packages = read_object(lock, label).get("packages")
        found = packages.get(f"node_modules/{package}") if isinstance(packages, dict) else None
        exact = found.get("version") if isinstance(found, dict) else None
        if not isinstance(exact, str):
            raise PinError(f"npm found no version for {label}")
        return exact

    return ask


def main(argv: list[str]) -> int:
    """Options as ``builder lock`` takes them. Exit code 4 when nothing newer is there."""
    options = parse_arguments(["lock", *argv])
    invocation = make_invocation(options, os.environ)
    workshop = open_workshop(invocation)
    project = open_project(options.config)
    with (
        invocation.reporter.step("look for what replaces vanished pins") as step,
        open_resolver(workshop, step) as resolver,
    ):
        moved = moves(pins_of(project.config), asking(resolver, project.config))
    path = Path(options.config)
    replace_file(path, rewritten(path.read_text(), moved).encode())
    for pin, version in moved.items():
        print(f"note: {pin} has vanished upstream; this copy now pins {version}", file=sys.stderr)
    return 0 if moved else 4


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BuilderError as failed:
        print(f"error: {failed}\n\nhint: {failed.hint}", file=sys.stderr)
        sys.exit(failed.code)
