"""What makes, proves and moves images."""

from __future__ import annotations

import argparse
from pathlib import Path

from builder.cli.options.parser import Parser
from builder.cli.options.shared import (
    common_options,
    config_option,
    image_argument,
    key_options,
    keyless_options,
    policy_option,
    proof_options,
)
from builder.cli.teaching import LESSONS


def init_options(parser: argparse.ArgumentParser) -> None:
    """Where the first files go, and how the keys are protected."""
    parser.add_argument("directory", nargs="?", type=Path, default=Path(), help="where builder.toml goes")
    parser.add_argument("--base", metavar="NAME@sha256:…", help="base image (default: what bootstrap made)")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="let runs reach this, in builder.toml and in policy.toml (default: nothing)",
    )
    parser.add_argument(
        "--passphrase-fd", type=int, metavar="N", help="encrypt the keys with what descriptor N says"
    )
    parser.add_argument(
        "--passphrase-file", type=Path, metavar="FILE", help="encrypt them with a 0600 file's line"
    )
    parser.add_argument(
        "--unencrypted-keys", action="store_true", help="keys without a passphrase; for throw-away state"
    )
    parser.add_argument(
        "--rebuilder", action="store_true", help="make a fourth key, that signs what was built again here"
    )


def lock_options(parser: argparse.ArgumentParser) -> None:
    """Make a lock, check one, or move pins."""
    config_option(parser)
    parser.add_argument("--check", action="store_true", help="resolve nothing; say whether the lock is fresh")
    parser.add_argument(
        "--upgrade",
        action="append",
        nargs="?",
        const="",
        metavar="NAME[=VERSION]",
        help="move a pin (an agent, node, base) to the newest or to VERSION; without NAME, all of them",
    )


def outdated_options(parser: argparse.ArgumentParser) -> None:
    """Whose pins."""
    config_option(parser)


def diff_options(parser: argparse.ArgumentParser) -> None:
    """The two sides."""
    for name in ("before", "after"):
        parser.add_argument(
            name, metavar=name.upper(), help="a lock file, a builder.toml (its lock), or an image's digest"
        )


def build_options(parser: argparse.ArgumentParser) -> None:
    """What is built, and who signs."""
    config_option(parser)
    known = parser.add_mutually_exclusive_group()
    known.add_argument("--no-cache", action="store_true", help="build again although the key is known")
    known.add_argument(
        "--cache",
        metavar="REF",
        help="look for the key in this repository (HOST/NAME) first; what is there is verified in full",
    )
    policy_option(parser)
    key_options(parser, "builder")
    keyless_options(parser)


# What only says how a check for a CI job is made and shown.
CI_ONLY = ("config", "digest_file", "summary", "sarif", "annotations")


def verify_options(parser: argparse.ArgumentParser) -> None:
    """What is checked, attested or built again."""
    image_argument(parser)
    proof_options(parser)
    parser.add_argument(
        "--ci",
        action="store_true",
        help="for a CI job: check lock, policy and image, and say all that is wrong",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="with --ci: default builder.toml here")
    parser.add_argument(
        "--digest-file", type=Path, metavar="FILE", help="with --ci: a file with the digest, or NAME@digest"
    )
    parser.add_argument("--summary", type=Path, metavar="FILE", help="with --ci: write a summary in Markdown")
    parser.add_argument("--sarif", type=Path, metavar="FILE", help="with --ci: write the problems as SARIF")
    parser.add_argument(
        "--annotations", choices=["github"], help="with --ci: say each problem as GitHub's annotations too"
    )
    parser.add_argument("--attest", action="store_true", help="sign the decision with the verifier key")
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="build the image's own lock again on an engine of this host, and compare the digests",
    )
    parser.add_argument(
        "--sign-rebuild",
        action="store_true",
        help="the same, and sign a match with the rebuilder key as a second statement",
    )
    key_options(parser, "verifier (with --sign-rebuild: rebuilder)")
    keyless_options(parser)


def bootstrap_options(parser: argparse.ArgumentParser) -> None:
    """Made here, refreshed, or taken from a layout."""
    parser.add_argument(
        "--refresh", action="store_true", help="resolve the packages again; write a reviewable diff"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="with --refresh: write the resolved lock there, not into the state",
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="LAYOUT",
        help="take the images that settings.toml gives from this OCI layout, by digest",
    )


def policy_options(parser: argparse.ArgumentParser) -> None:
    """What is done about the policy."""
    parser.add_argument(
        "act",
        choices=["pin", "check"],
        help="pin: take this policy as the newest accepted one; check: explain line by line what it decides",
    )
    image_argument(parser)
    proof_options(parser)


def scan_options(parser: argparse.ArgumentParser) -> None:
    """What is looked at."""
    parser.add_argument(
        "target", metavar="PATH|DIGEST", help="OCI layout, saved archive, or a digest in the state"
    )
    parser.add_argument("--strict", action="store_true", help="members that were not opened make it exit 6")
    parser.add_argument(
        "--known", type=Path, metavar="FILE", help="also look for these values, one a line of a 0600 file"
    )
    parser.add_argument(
        "--known-fd", type=int, metavar="N", help="also look for these values, one a line of descriptor N"
    )
    parser.add_argument(
        "--sarif", type=Path, metavar="FILE", help="also write the report as SARIF 2.1.0, for code hosts"
    )


def sbom_options(parser: argparse.ArgumentParser) -> None:
    """Whose bill, and where it goes."""
    image_argument(parser)
    proof_options(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write it there, as it was signed (default: print it)",
    )


def export_options(parser: argparse.ArgumentParser) -> None:
    """In which form, of what, where to, and who signs."""
    parser.add_argument("form", choices=["in-toto"], help="in-toto: links and a layout for in-toto-verify")
    image_argument(parser)
    parser.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder")
    proof_options(parser)
    key_options(parser, "builder")
    parser.add_argument("--verifier-key", type=Path, metavar="FILE", help="the verifier key (likewise)")
    parser.add_argument("--verifier-passphrase-fd", type=int, metavar="N", help="its passphrase, likewise")
    parser.add_argument("--verifier-passphrase-file", type=Path, metavar="FILE", help="or from a 0600 file")


def push_options(parser: argparse.ArgumentParser) -> None:
    """What goes where."""
    parser.add_argument("image", metavar="IMAGE", help="digest or builder.toml")
    parser.add_argument("reference", metavar="REF", help="HOST/NAME, or HOST/NAME:TAG to set a tag too")


def pull_options(parser: argparse.ArgumentParser) -> None:
    """What comes."""
    parser.add_argument(
        "reference", metavar="REF", help="HOST/NAME@sha256:… or HOST/NAME:TAG; the digest wins over a tag"
    )


def store_options(parser: argparse.ArgumentParser) -> None:
    """What is done with the store."""
    acts = parser.add_subparsers(dest="act", required=True, metavar="ACT", parser_class=Parser)

    def act(name: str, what: str) -> argparse.ArgumentParser:
        return acts.add_parser(
            name,
            description=what,
            help=what,
            epilog=LESSONS[f"store {name}"].epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[common_options(again=True)],
        )

    add = act("add", "Put files into the content store; print a line for [archives] of each.")
    add.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a regular file")
    export = act("export", "Write one archive to build, verify and run from without a network.")
    export.add_argument("out", type=Path, metavar="OUT", help="the archive to write")
    what = export.add_mutually_exclusive_group()
    what.add_argument("image", nargs="?", metavar="DIGEST", help="a built image; its lock is attached to it")
    what.add_argument(
        "--lock",
        type=Path,
        metavar="FILE",
        help="a lock, and its image if built (default: the one here)",
    )
    bring = act("import", "Take an archive into the state, every byte hashed; trust is never imported.")
    bring.add_argument("file", type=Path, metavar="FILE", help="an archive of builder store export")
