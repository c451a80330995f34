"""The grammar of the command line; help that teaches, the seven verbs of the day first."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from images.errors import ExitCode

_DESCRIPTION = """\
Provable container images for coding agents, and a runtime that refuses anything unproved.

every day:
  init       write a first builder.toml, policy.toml and the role keys
  lock       resolve every artifact that the image is made of
  build      build, scan, detect and sign; prints the image's digest
  verify     check an image offline; --attest signs the decision
  run        launch a verified image, hardened and recorded
  show       say what an image is and what proves it
  doctor     say what this host can and cannot enforce

now and then:
  bootstrap  make the base, the build container and the resolver on a machine without a registry
  policy     pin: accept an older or changed policy on purpose
  scan       look at every byte of an image for credentials
  outdated   say which pins have newer versions, or are gone
  diff       say what differs between two locks, projects or images
  store      add a file; export an image with all it is made of, for a team; import such an archive
  gc         remove from the state what nothing holds
  ps         say which containers of this state exist, and who owns them
  runs       list the launches, newest last; show RUN prints the record of one
  reap       remove what dead processes left: containers, staging
"""

_EPILOG = (
    "Where an image is asked for, give a digest (sha256:…) or a builder.toml; the default is the one here."
)


class _BadUsage(Exception):
    """What argparse complained about, and in which command."""

    def __init__(self, message: str, command: str) -> None:
        super().__init__(message)
        self.message = message
        self.command = command


class _Parser(argparse.ArgumentParser):
    """argparse ends the process on its own; here it only says what is wrong."""

    def error(self, message: str) -> NoReturn:
        raise _BadUsage(message, self.prog)


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parse; exits 2 with a hint on bad usage. In ``run``, everything after ``--`` is left alone."""
    head, tail = _split(argv)
    try:
        options = _parser().parse_args(head)
    except _BadUsage as bad:
        # In run, our failures are 125 whatever they are: other codes belong to the command inside.
        ours = head[:1] == ["run"] and "--dry-run" not in head
        sys.stderr.write(f"error: {bad.message}\n\nhint: {bad.command} --help\n")
        raise SystemExit(int(ExitCode.RUN_FAILED if ours else ExitCode.USAGE)) from None
    options.tail = tail
    return options


def _split(argv: list[str]) -> tuple[list[str], list[str] | None]:
    if "--" in argv:
        at = argv.index("--")
        return argv[:at], argv[at + 1 :]
    return argv, None


def _parser() -> argparse.ArgumentParser:
    everywhere = _common()
    parser = _Parser(
        prog="builder",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[],
    )
    parser.add_argument("--version", action="version", version=f"builder {version('agent-image-builder')}")
    verbs = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    def verb(name: str, what: str) -> argparse.ArgumentParser:
        return verbs.add_parser(name, description=what, parents=[everywhere])

    _init(verb("init", "Write builder.toml here; policy.toml, settings.toml and three role keys elsewhere."))
    _lock(verb("lock", "Resolve builder.toml to builder.lock: every artifact with its integrity."))
    _build(verb("build", "Build the locked image, scan it, detect its agents, sign the evidence."))
    _verify(verb("verify", "Check an image offline against policy and expectation, check by check."))
    _run(
        verb("run", "Launch a verified image. The exit code is the command's own; 125 is a failure of ours.")
    )
    _show(verb("show", "Say what an image is, what is in it and which evidence exists."))
    _doctor(verb("doctor", "Say what this host can enforce, and the remedy for what it cannot."))
    _bootstrap(verb("bootstrap", "Make or pull base, build container and resolver."))
    _outdated(verb("outdated", "Ask which pins of builder.toml have newer versions, or are gone upstream."))
    _diff(verb("diff", "Say what differs between two locks, projects or images."))
    _policy(verb("policy", "Accept the policy on purpose: the rollback marks are set to it."))
    _scan(
        verb("scan", "Scan any OCI layout, saved archive or image digest for credentials. Needs no engine.")
    )
    _store(verb("store", "Add files to the content store; hand an image and all it is made of to a team."))
    _gc(verb("gc", "Remove what nothing holds: images, artifacts, caches, what dead processes left."))
    verb("ps", "List the containers of this state on the engine, in every state; owner alive or dead.")
    verb("runs", "List the launches that the journal knows, with image, engine and how they ended.")
    _reap(verb("reap", "Remove what dead processes of this state left on the engine and in staging."))
    return parser


def _common(*, again: bool = False) -> _Parser:
    """The options of every command. ``again``: for a command of a command, where they may stand too."""
    common = _Parser(add_help=False)
    common.add_argument(
        "--state", type=Path, metavar="DIR", help="state root (default: the XDG state directory)"
    )
    common.add_argument(
        "--config-dir", type=Path, metavar="DIR", help="where policy.toml, settings.toml, keys are"
    )
    common.add_argument(
        "--engine", metavar="NAME", help="docker or podman (default: settings.toml, else found)"
    )
    common.add_argument("--json", action="store_true", help="print one JSON object, on failure too")
    common.add_argument("--progress", choices=["auto", "plain", "json"], default="auto")
    common.add_argument("--quiet", action="store_true", help="warnings and errors only")
    common.add_argument("--verbose", action="store_true", help="every line of every step")
    if again:
        for action in common._actions:  # else their defaults would undo what stands before the second word
            action.default = argparse.SUPPRESS
    return common


def _config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", default=Path("builder.toml"), help="default: builder.toml here"
    )


def _image_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "image", nargs="?", metavar="IMAGE", help="digest or builder.toml (default: the one here)"
    )


def _policy_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", type=Path, metavar="FILE", help="the trust policy (default: searched)")


def _proof_options(parser: argparse.ArgumentParser) -> None:
    _policy_option(parser)
    parser.add_argument("--lock", type=Path, metavar="FILE", help="the lock that the image must be made of")


def _key_options(parser: argparse.ArgumentParser, role: str) -> None:
    parser.add_argument(
        "--key", type=Path, metavar="FILE", help=f"the {role} key (default: beside policy.toml)"
    )
    parser.add_argument(
        "--passphrase-fd", type=int, metavar="N", help="read the key's passphrase from descriptor N"
    )
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="read it from a 0600 file")


def _init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", nargs="?", type=Path, default=Path(), help="where builder.toml goes")
    parser.add_argument("--base", metavar="NAME@sha256:…", help="base image (default: what bootstrap made)")
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


def _lock(parser: argparse.ArgumentParser) -> None:
    _config_option(parser)
    parser.add_argument("--check", action="store_true", help="resolve nothing; say whether the lock is fresh")
    parser.add_argument(
        "--upgrade",
        action="append",
        nargs="?",
        const="",
        metavar="NAME[=VERSION]",
        help="move a pin (an agent, node, base) to the newest or to VERSION; without NAME, all of them",
    )


def _outdated(parser: argparse.ArgumentParser) -> None:
    _config_option(parser)


def _diff(parser: argparse.ArgumentParser) -> None:
    for name in ("before", "after"):
        parser.add_argument(
            name, metavar=name.upper(), help="a lock file, a builder.toml (its lock), or an image's digest"
        )


def _build(parser: argparse.ArgumentParser) -> None:
    _config_option(parser)
    parser.add_argument("--no-cache", action="store_true", help="build again although the key is known")
    _policy_option(parser)
    _key_options(parser, "builder")


def _verify(parser: argparse.ArgumentParser) -> None:
    _image_argument(parser)
    _proof_options(parser)
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
    _key_options(parser, "verifier (with --sign-rebuild: rebuilder)")


def _run(parser: argparse.ArgumentParser) -> None:
    parser.usage = "builder run [IMAGE] [--agent NAME] [options] [-- COMMAND…]"
    _image_argument(parser)
    parser.add_argument(
        "--agent", metavar="NAME", help="run this CLI's launcher; what follows -- are its arguments"
    )
    parser.add_argument(
        "--deadline", metavar="TIME", help="longest run, as 90s, 30m or 2h (default: builder.toml)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and launch nothing")
    _proof_options(parser)
    _key_options(parser, "launcher")


def _show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "image",
        nargs="?",
        metavar="IMAGE|RUN",
        help="digest or builder.toml (default: the one here), or a run or launch of builder runs",
    )


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fresh", action="store_true", help="probe again, whatever the cache says")


def _bootstrap(parser: argparse.ArgumentParser) -> None:
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


def _policy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("act", choices=["pin"], help="pin: take this policy as the newest accepted one")
    _policy_option(parser)


def _scan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="PATH|DIGEST", help="OCI layout, saved archive, or a digest in the state"
    )
    parser.add_argument("--strict", action="store_true", help="members that were not opened make it exit 6")


def _store(parser: argparse.ArgumentParser) -> None:
    acts = parser.add_subparsers(dest="act", required=True, metavar="ACT", parser_class=_Parser)

    def act(name: str, what: str) -> argparse.ArgumentParser:
        return acts.add_parser(name, description=what, help=what, parents=[_common(again=True)])

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


def _reap(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="say what would go; remove nothing")


def _gc(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="say what would go; remove nothing")
    parser.add_argument(
        "--keep",
        type=int,
        metavar="N",
        help="of each image name keep the newest N (default: all proved ones)",
    )
    parser.add_argument(
        "--older-than", metavar="AGE", help="let proved images older than that go, as 30d; with --keep: both"
    )
    parser.add_argument(
        "--grace", metavar="AGE", default="1h", help="what is younger stays in any case (default: 1h)"
    )
    parser.add_argument("--images", action="store_true", help="remove the engine's copies of such images too")
