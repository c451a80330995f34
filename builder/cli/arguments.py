"""The grammar of the command line; help that teaches, the seven verbs of the day first."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Final

from builder.cli.options.making import (
    bootstrap_options,
    build_options,
    diff_options,
    export_options,
    init_options,
    lock_options,
    outdated_options,
    policy_options,
    pull_options,
    push_options,
    sbom_options,
    scan_options,
    store_options,
    verify_options,
)
from builder.cli.options.parser import BadUsage, Parser
from builder.cli.options.running import (
    completion_options,
    doctor_options,
    gc_options,
    login_options,
    logout_options,
    logs_options,
    reap_options,
    run_options,
    sessions_options,
    show_options,
)
from builder.cli.options.shared import common_options
from builder.cli.teaching import LESSONS

_DESCRIPTION = """\
Provable container images for coding agents, and a runtime that refuses anything unproved.

every day:
  init       write a first builder.toml, policy.toml and the role keys
  lock       resolve every artifact that the image is made of
  build      build, scan, detect and sign; prints the image's digest
  verify     check an image offline; --attest signs the decision
  run        launch a verified image, hardened and recorded
  show       say what an image is and what proves it; --as: its plan for use elsewhere
  doctor     say what this host can and cannot enforce

now and then:
  login      log an agent in, once, for its later runs; logout forgets it
  bootstrap  make the base, the build container and the resolver on a machine without a registry
  policy     check: explain what the policy decides; pin: accept an older or changed one on purpose
  scan       look at every byte of an image for credentials
  sbom       print the signed bill of materials of an image (CycloneDX)
  export     in-toto: write what proves an image for in-toto's own verifier
  outdated   say which pins have newer versions, or are gone
  diff       say what differs between two locks, projects or images
  push       put an image and its evidence into a registry
  pull       take an image and its evidence from a registry; nothing is believed before verify
  store      add a file; export an image with all it is made of, for a team; import such an archive
  gc         remove from the state what nothing holds
  ps         say which containers of this state exist, and who owns them
  runs       list the launches, newest last; show RUN prints the record of one
  logs       print what a launch said, if it was kept
  sessions   list what agents remember from run to run; --remove forgets one
  reap       remove what dead processes left: containers, staging
  completion print what makes TAB complete commands and options in bash or zsh
"""

_EPILOG = """\
the first time, in a repository of yours:
  builder bootstrap && builder init --unencrypted-keys --allow api.anthropic.com:443
  builder lock && builder build && builder verify --attest
  builder run --agent claude-code --credential claude-code.api-key=FILE

Where an image is asked for, give a digest (sha256:…) or a builder.toml; the default is the one here.
Each command's --help has examples and names its page; the first to read is docs/tutorial/first-agent.md.
"""


_Adds = Callable[[argparse.ArgumentParser], None]
_VERBS: Final[tuple[tuple[str, str, _Adds | None], ...]] = (
    (
        "init",
        "Write builder.toml here; policy.toml, settings.toml and three role keys elsewhere.",
        init_options,
    ),
    ("lock", "Resolve builder.toml to builder.lock: every artifact with its integrity.", lock_options),
    ("build", "Build the locked image, scan it, detect its agents, sign the evidence.", build_options),
    ("verify", "Check an image offline against policy and expectation, check by check.", verify_options),
    (
        "run",
        "Launch a verified image. The exit code is the command's own; 125 is a failure of ours.",
        run_options,
    ),
    ("show", "Say what an image is, what is in it and which evidence exists.", show_options),
    ("doctor", "Say what this host can enforce, and the remedy for what it cannot.", doctor_options),
    (
        "login",
        "Run an agent's own login in a container, and keep what it leaves for its later runs.",
        login_options,
    ),
    ("logout", "Forget a login of an agent. Its provider does not hear of it.", logout_options),
    ("bootstrap", "Make or pull base, build container and resolver.", bootstrap_options),
    (
        "outdated",
        "Ask which pins of builder.toml have newer versions, or are gone upstream.",
        outdated_options,
    ),
    ("diff", "Say what differs between two locks, projects or images.", diff_options),
    (
        "policy",
        "Explain what the policy decides, or accept it on purpose by setting the rollback marks to it.",
        policy_options,
    ),
    (
        "scan",
        "Scan any OCI layout, saved archive or image digest for credentials. Needs no engine.",
        scan_options,
    ),
    ("export", "Write what proves an image in another form: in-toto links and a layout.", export_options),
    ("sbom", "Print the signed bill of materials of a verified image, in CycloneDX.", sbom_options),
    ("push", "Put an image, its lock and its evidence into a registry; print what to pull.", push_options),
    (
        "pull",
        "Take an image and its evidence from a registry, every byte hashed; verify says what it is worth.",
        pull_options,
    ),
    (
        "store",
        "Add files to the content store; hand an image and all it is made of to a team.",
        store_options,
    ),
    ("gc", "Remove what nothing holds: images, artifacts, caches, what dead processes left.", gc_options),
    ("ps", "List the containers of this state on the engine, in every state; owner alive or dead.", None),
    ("runs", "List the launches that the journal knows, with image, engine and how they ended.", None),
    ("logs", "Print what a launch said, if run --keep-log kept it.", logs_options),
    ("sessions", "List what agents remember of their runs (run --session), or forget it.", sessions_options),
    ("reap", "Remove what dead processes of this state left on the engine and in staging.", reap_options),
    ("completion", "Print a script that completes commands and options in your shell.", completion_options),
)


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parse; BadUsage says what is wrong. In ``run``, everything after ``--`` is left alone."""
    head, tail = split_tail(argv)
    names = [name for name, _, _ in _VERBS]
    word = next((word for word in head if not word.startswith("-")), names[0])
    if word not in names:
        raise BadUsage(f"no such command: {word!r}{_meant(word, names)}", "builder")
    parser = make_parser()
    options, unknown = parser.parse_known_args(head)
    if unknown:
        # argparse says it in the name of the whole program, whose help does not have the command's options.
        act = options.act if options.command == "store" else ""
        command = f"builder {options.command} {act}".strip()
        near = _meant(unknown[0].partition("=")[0], _options_of(parser, options.command, act))
        raise BadUsage(f"unrecognized arguments: {' '.join(unknown)}{near}", command)
    options.tail = tail
    return options


def _meant(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _options_of(parser: argparse.ArgumentParser, *words: str) -> list[str]:
    """The options of a command, or of a command's command."""
    for word in filter(None, words):
        (verbs,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
        parser = verbs.choices[word]
    return [option for action in parser._actions for option in action.option_strings]


def split_tail(argv: list[str]) -> tuple[list[str], list[str] | None]:
    if "--" in argv:
        at = argv.index("--")
        return argv[:at], argv[at + 1 :]
    return argv, None


def make_parser(*, listed: bool = False) -> argparse.ArgumentParser:
    """The whole grammar. ``listed``: each command has its sentence also where commands are listed."""
    everywhere = common_options()
    parser = Parser(
        prog="builder",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[],
    )
    parser.add_argument("--version", action="version", version=f"builder {version('agent-image-builder')}")
    verbs = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)

    for name, what, add_options in _VERBS:
        in_the_list: dict[str, Any] = {"help": what} if listed else {}
        one = verbs.add_parser(
            name,
            description=what,
            epilog=LESSONS[name].epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[everywhere],
            **in_the_list,
        )
        if add_options is not None:
            add_options(one)
    return parser
