"""The acts by which a container shows that /workspace is the agent's and /source is this tree, read-only."""

from __future__ import annotations

import re
from typing import Final

from backend.workspace.prepared import Witness

# $1: the workspace, $2: the source, $3: a nonce, $4: the witness's path or nothing, $5: its SHA-256.
# Acts, not modes: a mount can say one thing and do another. Each line names one act that went wrong.
SCRIPT: Final = r"""
workspace=$1 source=$2 nonce=$3 witness=$4 sum=$5
mark=$workspace/.aib-$nonce
(umask 077; mkdir "$mark") 2>/dev/null || echo cannot-create
if (printf %s "$nonce" >"$mark/file") 2>/dev/null; then
    [ "$(cat "$mark/file" 2>/dev/null)" = "$nonce" ] || echo reads-back-differently
    rm "$mark/file" 2>/dev/null || echo cannot-delete
else
    echo cannot-write
fi
rmdir "$mark" 2>/dev/null || echo cannot-delete
if [ -n "$witness" ]; then
    found=$(sha256sum <"$source/$witness" 2>/dev/null) || found=
    [ "${found%% *}" = "$sum" ] || echo source-is-another
    (: >>"$source/$witness") 2>/dev/null && echo source-file-writable
fi
(cd "$source") 2>/dev/null || echo source-unreadable
(: >"$source/.aib-$nonce") 2>/dev/null && echo source-writable
printf 'checked %s\n' "$nonce"
"""

_WHY: Final = {
    "cannot-create": "the agent cannot create in /workspace",
    "cannot-write": "the agent cannot write in /workspace",
    "cannot-delete": "the agent cannot delete in /workspace",
    "reads-back-differently": "what the agent writes in /workspace reads back differently",
    "source-is-another": "/source is not the tree of the commit",
    "source-unreadable": "the agent cannot read /source",
    "source-writable": "the agent can create in /source",
    "source-file-writable": "the agent can write to a file of /source",
}


def check_argv(workspace: str, source: str, nonce: str, witness: Witness | None) -> tuple[str, ...]:
    """What to run as the agent, before anything of the agent runs."""
    path, digest = (witness.path, witness.sha256) if witness else ("", "")
    return ("sh", "-c", SCRIPT, "check", workspace, source, nonce, path, digest)


def faults(answer: bytes, nonce: str) -> tuple[str, ...]:
    """What went wrong, in plain words; empty when all held."""
    lines = answer.decode("ascii", "replace").split("\n")
    if lines[-2:] != [f"checked {nonce}", ""]:
        return ("the container did not come to the end of the check",)
    found = dict.fromkeys(lines[:-2])
    return tuple(_WHY.get(line, re.sub(r"[^ -~]", "?", line)[:80]) for line in found)
