"""Options that more than one command takes."""

from __future__ import annotations

import argparse
from pathlib import Path

from builder.cli.options.parser import Parser


def common_options(*, again: bool = False) -> Parser:
    """The options of every command. ``again``: for a command of a command, where they may stand too."""
    common = Parser(add_help=False)
    common.add_argument(
        "--state", type=Path, metavar="DIR", help="state root (default: ~/.local/state/agent-image-builder)"
    )
    common.add_argument(
        "--config-dir",
        type=Path,
        metavar="DIR",
        help="where policy.toml, settings.toml, keys are (default: ~/.config/agent-image-builder)",
    )
    common.add_argument(
        "--engine",
        choices=["docker", "podman"],
        metavar="NAME",
        help="docker or podman (default: settings.toml, else found)",
    )
    common.add_argument("--json", action="store_true", help="print one JSON object, on failure too")
    common.add_argument(
        "--progress",
        choices=["auto", "plain", "json"],
        default="auto",
        help="how steps are told on standard error: a bar at a terminal, lines, or a JSON object for each"
        " (default: auto)",
    )
    common.add_argument("--quiet", action="store_true", help="warnings and errors only")
    common.add_argument("--verbose", action="store_true", help="every line of every step")
    if again:
        for action in common._actions:  # else their defaults would undo what stands before the second word
            action.default = argparse.SUPPRESS
    return common


def config_option(parser: argparse.ArgumentParser) -> None:
    """Which builder.toml."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", default=Path("builder.toml"), help="default: builder.toml here"
    )


def image_argument(parser: argparse.ArgumentParser) -> None:
    """An image, by digest or by its builder.toml."""
    parser.add_argument(
        "image", nargs="?", metavar="IMAGE", help="digest or builder.toml (default: the one here)"
    )


def policy_option(parser: argparse.ArgumentParser) -> None:
    """Which trust policy."""
    parser.add_argument("--policy", type=Path, metavar="FILE", help="the trust policy (default: searched)")


def proof_options(parser: argparse.ArgumentParser) -> None:
    """Policy and expectation."""
    policy_option(parser)
    parser.add_argument("--lock", type=Path, metavar="FILE", help="the lock that the image must be made of")


def key_options(parser: argparse.ArgumentParser, role: str) -> None:
    """The key of a role, and its passphrase."""
    parser.add_argument(
        "--key", type=Path, metavar="FILE", help=f"the {role} key (default: beside policy.toml)"
    )
    parser.add_argument(
        "--passphrase-fd", type=int, metavar="N", help="read the key's passphrase from descriptor N"
    )
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="read it from a 0600 file")


def keyless_options(parser: argparse.ArgumentParser) -> None:
    """Signing for an identity in place of the key."""
    parser.add_argument(
        "--keyless",
        metavar="IDENTITY",
        help="sign for this identity of the policy, by a certificate of the services of settings.toml",
    )
    parser.add_argument(
        "--identity-token-fd",
        type=int,
        metavar="N",
        help="with --keyless: the identity token, from descriptor N (default: the CI system's)",
    )
