"""The one export: a fixed script that runs inside, as the agent, and writes manifest and pack to its output.

Whoever controls the workspace controls what the script says, so nothing here is a check: the import is.
"""

from __future__ import annotations

from typing import Final

from backend.commands import Ending, Outcome
from backend.engines.client import complaint
from backend.workspace.refusals import CandidateReason, CandidateRefused

NO_COMMIT: Final = 65
NOT_DESCENDED: Final = 66
TOO_LARGE: Final = 67
NOT_PACKED: Final = 68
NO_TOOL: Final = 69

# $1: the commit that the workspace started from; $2: most bytes of the pack. Runs in the workspace.
# Paths come quoted by git, so that each is one line of printable ASCII that sed can make a JSON string of.
SCRIPT: Final = r"""
set -eu
umask 077
export LC_ALL=C GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 GIT_OPTIONAL_LOCKS=0 \
    GIT_NO_REPLACE_OBJECTS=1 GIT_NO_LAZY_FETCH=1 GIT_TERMINAL_PROMPT=0
base=$1 most=$2
stop() { printf 'export: %s\n' "$1" >&2; exit "$2"; }
run() {
    git --no-pager -c core.quotePath=true -c core.fsmonitor=false -c core.hooksPath=/dev/null \
        -c pack.useSparse=false -c pack.threads=1 "$@"
}
for tool in git sed od sha256sum wc head mktemp rm cat; do
    command -v "$tool" >/dev/null || stop "the image has no $tool" 69
done
form=$(run rev-parse --show-object-format) || stop 'there is no repository here' 65
commit=$(run rev-parse --quiet --verify --end-of-options 'HEAD^{commit}') || stop 'there is no commit here' 65
run merge-base --is-ancestor "$base" "$commit" || stop "commit $commit does not descend from $base" 66
branch=$(run symbolic-ref --quiet --short HEAD) || branch=
case $branch in *[!!-~]* | *\"* | *\\*) branch= ;; esac
[ -z "$branch" ] && branch=null || branch="\"$branch\""
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
room=4000000
: >"$folder/pack"
{
    run status --porcelain=v2 --untracked-files=all --ignore-submodules=none --no-renames ||
        : >"$folder/cut"
    run for-each-ref --no-merged="$commit" --format='r %(refname)' refs/heads refs/stash || : >"$folder/cut"
} 2>/dev/null | head -c $room >"$folder/status"
[ "$(wc -c <"$folder/status")" -lt $room ] || : >"$folder/cut"
[ -e "$folder/cut" ] && complete=false || complete=true
fields='[^ ]* [^ ]* [^ ]* [^ ]* [^ ]*'
sed -n \
    -e 's/\\/\\\\/g; s/"/\\"/g' -e 't fresh' -e ': fresh' \
    -e "s/^1 .. S[^ ]* $fields \(.*\)\$/{\"kind\":\"submodule\",\"path\":\"\1\"}/p; t" \
    -e "s/^u .. S[^ ]* $fields [^ ]* [^ ]* \(.*\)\$/{\"kind\":\"submodule\",\"path\":\"\1\"}/p; t" \
    -e "s/^1 .. N[^ ]* $fields \(.*\)\$/{\"kind\":\"modified\",\"path\":\"\1\"}/p; t" \
    -e "s/^u .. N[^ ]* $fields [^ ]* [^ ]* \(.*\)\$/{\"kind\":\"modified\",\"path\":\"\1\"}/p; t" \
    -e 's/^? \(.*\/\)$/{"kind":"nested-repository","path":"\1"}/p; t' \
    -e 's/^? \(.*\/\\"\)$/{"kind":"nested-repository","path":"\1"}/p; t' \
    -e 's/^? \(.*\)$/{"kind":"untracked","path":"\1"}/p; t' \
    -e 's/^r \([!-~]*\)$/{"kind":"reference","path":"\1"}/p' \
    <"$folder/status" >"$folder/found"
total=$(wc -l <"$folder/found")
# What was cut in the middle of a line is left out of the names; it is counted.
entries=$(head -n 1000 "$folder/found" | head -c 500000 | sed -n '/[^\\]"}$/p' | sed '$!s/$/,/')
parents=$(run cat-file commit "$commit" | sed -n '/^$/q; s/^parent \([0-9a-f]*\)$/"\1"/p' | sed '$!s/$/,/')
objects=0
if [ "$commit" != "$base" ]; then
    {
        printf '%s\n^%s\n' "$commit" "$base" |
            run pack-objects --quiet --revs --stdout --delta-base-offset || : >"$folder/broken"
    } | head -c $((most + 1)) >"$folder/pack"
    [ "$(wc -c <"$folder/pack")" -le "$most" ] || stop "the pack would have more than $most bytes" 67
    [ ! -e "$folder/broken" ] || stop 'git cannot pack the commit' 68
    set -- $(od -An -tu1 -j8 -N4 "$folder/pack")
    objects=$((($1 * 256 + $2) * 65536 + $3 * 256 + $4))
fi
size=$(($(wc -c <"$folder/pack")))
sum=$(sha256sum <"$folder/pack")
printf '%s\n' "{\"schema\":1,\"format\":\"agent-image-builder-export\",\"objectFormat\":\"$form\"," \
    "\"base\":\"$base\",\"commit\":\"$commit\",\"parents\":[$parents],\"branch\":$branch," \
    "\"pack\":{\"size\":$size,\"sha256\":\"${sum%% *}\",\"objects\":$objects}," \
    "\"notExported\":{\"total\":$((total)),\"complete\":$complete,\"entries\":[$entries]}}" \
    >"$folder/manifest"
printf 'agent-image-builder-export 1 %d %d\n' "$(wc -c <"$folder/manifest")" "$size"
cat "$folder/manifest" "$folder/pack"
"""

# Links that were not copied in as links are made again here, where they lead nowhere but into the container.
_PREPARE: Final = """\
git read-tree HEAD
git diff-files -z --name-only --diff-filter=T | git checkout-index --force -z --stdin
"""

_REASONS: Final = {
    NOT_DESCENDED: CandidateReason.NOT_DESCENDED,
    TOO_LARGE: CandidateReason.TOO_LARGE,
}


def export_command(base: str, max_pack: int) -> tuple[str, ...]:
    """What to run in the workspace, as the agent; its output is the export, see :mod:`export_frame`."""
    return ("sh", "-c", SCRIPT, "export", base, str(max_pack))


def prepare_command() -> tuple[str, ...]:
    """What to run once, as the agent, in a workspace that was copied in: it makes the index."""
    return ("sh", "-euc", _PREPARE)


def check_producer(outcome: Outcome) -> None:
    """The command ended well. Raises CandidateRefused with what it said."""
    if outcome.ok:
        return
    if outcome.ending is Ending.OVERFLOWED:
        raise CandidateRefused(CandidateReason.TOO_LARGE, f"the export has {outcome.detail}", where="export")
    ended = outcome.ending.value if outcome.exit_code is None else f"exit code {outcome.exit_code}"
    why = complaint(outcome.stderr) or outcome.detail or ended
    reason = _REASONS.get(outcome.exit_code or 0, CandidateReason.PRODUCER)
    raise CandidateRefused(reason, f"nothing was exported: {why}", where="export")
