"""What launches images, and looks after what launches leave."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from builder.cli.options.shared import image_argument, key_options, proof_options


def run_options(parser: argparse.ArgumentParser) -> None:
    """What is launched, on which files, with which credentials."""
    parser.usage = "builder run [IMAGE] [--agent NAME] [options] [-- COMMAND…]"
    image_argument(parser)
    parser.add_argument(
        "--agent", metavar="NAME", help="run this CLI's launcher; what follows -- are its arguments"
    )
    parser.add_argument(
        "--deadline", metavar="TIME", help="longest run, as 90s, 30m or 2h (default: builder.toml)"
    )
    _credential_options(
        parser, "give the agent this credential, from a 0600 file; NAME as claude-code.api-key"
    )
    parser.add_argument(
        "--login",
        metavar="NAME",
        help="use this login of the agent's (default: its own, where no credential is given)",
    )
    parser.add_argument(
        "--session",
        metavar="NAME",
        help="let the agent remember its earlier runs of this name, and keep what it remembers of this one",
    )
    parser.add_argument(
        "--server-secret-fd",
        action="append",
        default=[],
        metavar="SERVER.VARIABLE=N",
        help="the value, from descriptor N, of a secret that the policy has given at each launch",
    )
    parser.add_argument(
        "--no-tty",
        action="store_true",
        help="capture the output, redacted, also where standard input and output are a terminal",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and launch nothing")
    parser.add_argument(
        "--keep-log",
        action="store_true",
        help="keep what the command says, redacted, the last 4 to 8 MiB, for builder logs",
    )
    _files_options(parser)
    proof_options(parser)
    key_options(parser, "launcher")


def _credential_options(parser: argparse.ArgumentParser, what: str) -> None:
    given: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("--credential", metavar="NAME=FILE", help=what, **given)
    parser.add_argument("--credential-fd", metavar="NAME=N", help="the same, from descriptor N", **given)


def _files_options(parser: argparse.ArgumentParser) -> None:
    files = parser.add_mutually_exclusive_group()
    files.add_argument(
        "--source",
        type=Path,
        metavar="DIR",
        help="a git repository: one commit of it is /source, read-only, and the start of /workspace;"
        " what the agent commits there comes home (default, where an agent is run: the repository here)",
    )
    files.add_argument("--no-source", action="store_true", help="give the agent no files of yours")
    files.add_argument(
        "--review",
        metavar="LAUNCH",
        help="the same with the commit that LAUNCH exported; nothing comes out of a review",
    )
    files.add_argument(
        "--fix", metavar="LAUNCH", help="start from the commit that LAUNCH exported; what is added comes home"
    )
    files.add_argument(
        "--check",
        metavar="LAUNCH",
        help="run the command after -- over the files of that commit: no agent, no credential, no git;"
        " nothing comes out",
    )
    parser.add_argument(
        "--new-run",
        action="store_true",
        help="with --review, --fix, --check: begin a run, so that image, engine and mode may be others than"
        " LAUNCH had (default: the next step of its run)",
    )
    parser.add_argument(
        "--commit",
        metavar="REV",
        help="with --source: full commit id, branch or tag (default: HEAD); with a LAUNCH: the full id that"
        " its commit must have",
    )
    parser.add_argument(
        "--copy-in", action="store_true", help="copy /source in, even where it could be bound"
    )
    parser.add_argument(
        "--workspace-size",
        metavar="SIZE",
        help="end the run when /workspace grows beyond, as 20GiB (default: 8GiB)",
    )


def login_options(parser: argparse.ArgumentParser) -> None:
    """Whose login, by which image; or a credential that is there already."""
    parser.usage = "builder login AGENT [IMAGE] [--as NAME] [options]\n       builder login --list"
    parser.add_argument("agent", nargs="?", metavar="AGENT", help="claude-code, opencode or pi")
    image_argument(parser)
    _login_name(parser)
    parser.add_argument("--list", action="store_true", help="list the logins that are kept")
    _credential_options(
        parser, "keep what this 0600 file holds, and start nothing; NAME as claude-code.oauth-token"
    )
    parser.add_argument(
        "--unencrypted", action="store_true", help="keep it unencrypted, although there is a keyring"
    )
    proof_options(parser)
    key_options(parser, "launcher")


def logout_options(parser: argparse.ArgumentParser) -> None:
    """Which login goes."""
    parser.add_argument("agent", metavar="AGENT", help="claude-code, opencode or pi")
    _login_name(parser)


def _login_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--as", dest="name", metavar="NAME", default="default", help="which of the agent's logins"
    )


def show_options(parser: argparse.ArgumentParser) -> None:
    """An image, or a run; or the plan of an image for use elsewhere."""
    parser.add_argument(
        "image",
        nargs="?",
        metavar="IMAGE|RUN",
        help="digest or builder.toml (default: the one here), or a run or launch of builder runs",
    )
    parser.add_argument(
        "--as",
        dest="form",
        choices=["docker", "compose", "devcontainer", "kubernetes"],
        help="print the plan of a launch of this image, which must verify, for use elsewhere; what is started"
        " from it is not admitted by builder",
    )
    proof_options(parser)


def doctor_options(parser: argparse.ArgumentParser) -> None:
    """Ask anew, or take what is known."""
    parser.add_argument("--fresh", action="store_true", help="probe again, whatever the cache says")


def logs_options(parser: argparse.ArgumentParser) -> None:
    """Whose output."""
    parser.add_argument("run", metavar="RUN", help="a run or launch of builder runs")


def sessions_options(parser: argparse.ArgumentParser) -> None:
    """Which one goes."""
    parser.add_argument(
        "--remove",
        metavar="NAME",
        help="forget this session: the histories of every agent in it; one that a run has now stays",
    )


def reap_options(parser: argparse.ArgumentParser) -> None:
    """What dead processes left."""
    parser.add_argument("--dry-run", action="store_true", help="say what would go; remove nothing")


def gc_options(parser: argparse.ArgumentParser) -> None:
    """What nothing holds."""
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
    parser.add_argument(
        "--candidates",
        metavar="AGE",
        help="let exported commits go that were recorded longer ago, as 30d, fetched or not (default: none)",
    )
    parser.add_argument(
        "--logs",
        metavar="AGE",
        default="30d",
        help="let kept output of launches go that is older (default: 30d)",
    )
    parser.add_argument(
        "--sessions",
        metavar="AGE",
        help="let sessions go, what agents remember, that were last kept longer ago, as 90d (default: none)",
    )
    parser.add_argument("--images", action="store_true", help="remove the engine's copies of such images too")


def completion_options(parser: argparse.ArgumentParser) -> None:
    """Whose shell."""
    parser.add_argument("shell", choices=["bash", "zsh"], help="whose completion")
