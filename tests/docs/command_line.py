"""Writes docs/reference/command-line.md from the program's help: ``python -m tests.docs.command_line``."""

from __future__ import annotations

import contextlib
import io
import os

from builder.cli.arguments import parse_arguments
from builder.cli.verbs import ACTS, VERBS
from tests.docs.documents import ROOT

PAGE = ROOT / "docs/reference/command-line.md"
_HEAD = """\
# Command line

Made from the program's own help (`python -m tests.docs.command_line`); a test holds the two together.
Standard output carries data only: `builder build` prints one line, the digest. Everything for people goes to
standard error. `--json` prints one object, on failure too; each command's has a schema:
[results.md](results.md). Exit codes: [exit-codes.md](exit-codes.md).
"""


def render() -> str:
    """The page, with help wrapped at 100 columns."""
    pages = [_HEAD, f"\n```text\n{_help([])}```\n"]
    for verb in VERBS:
        for words in ([verb], *([verb, act] for act in ACTS.get(verb, ()))):
            pages.append(f"\n## builder {' '.join(words)}\n\n```text\n{_help(words)}```\n")
    return "".join(pages)


def _help(words: list[str]) -> str:
    out = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "102"
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            parse_arguments([*words, "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    return out.getvalue()


if __name__ == "__main__":
    PAGE.write_text(render())
