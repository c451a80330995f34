"""`builder completion`: a script for the operator's shell, made of the grammar; TAB starts nothing here."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import shtab

from builder.cli.arguments import make_parser
from builder.cli.documents.shell import CompletionDocument, Shell
from builder.cli.invocation import Invocation, Result


def run(invocation: Invocation) -> Result[CompletionDocument]:
    """The script on standard output."""
    shell = Shell(invocation.options.shell)
    script = completion_script(shell)
    return Result(line=script.removesuffix("\n"), document=CompletionDocument(shell=shell, script=script))


def completion_script(shell: Shell) -> str:
    """Static: commands, options, choices, and files where a file is meant."""
    parser = make_parser(listed=True)
    for action in _actions(parser):
        if action.type is Path:
            kind = shtab.DIRECTORY if "DIR" in str(action.metavar) else shtab.FILE
            action.complete = kind  # type: ignore[attr-defined]  # where shtab looks for it
    script = shtab.complete(parser, shell=shell.value).rstrip("\n") + "\n"
    ours = "-o bashdefault -F _shtab_builder builder"
    # Else bash sorts the commands of the day among the others; one before 4.4 knows no other way.
    return script.replace(f"complete {ours}", f"complete -o nosort {ours} 2>/dev/null || complete {ours}")


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from _actions(one)
