"""One issue's workflow with the real agents: execute, review, fix, check, ready; the commit is exact at each.

The controller that decides is this test's own. The agents' provider is scripted: it has each of them run one
shell command by its own tool, then says a word.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from images.errors import ExitCode
from tests.fakes.projected import file_of, named
from tests.fakes.repositories import ENVIRONMENT, Repo
from tests.real.agents_at_work import KEYS
from tests.real.scripted_provider import ADDRESS, start_provider
from tests.real.spine import Spine

pytestmark = pytest.mark.real

AGENTS: Final = ("claude-code", "opencode", "pi")
# The Messages interface, with a stream: whoever has a shell among its tools is told to use it, once.
PROVIDER = start_provider(
    """\
    const {tools = [], messages} = JSON.parse(body);
    const shell = tools.find((tool) => tool.name.toLowerCase() === "bash");
    const acts = shell !== undefined && !JSON.stringify(messages).includes('"tool_result"');
    const input = {command: readFileSync("/tmp/command", "utf8"), description: "as scripted"};
""",
    required='const {readFileSync} = require("node:fs");\n',
    answer="""\
    say("content_block_start", {index: 0, content_block: acts
      ? {type: "tool_use", id: "toolu_1", name: shell.name, input: {}} : {type: "text", text: ""}});
    say("content_block_delta", {index: 0, delta: acts
      ? {type: "input_json_delta", partial_json: JSON.stringify(input)}
      : {type: "text_delta", text: "scripted answer"}});
    say("content_block_stop", {index: 0});
    say("message_delta", {delta: {stop_reason: acts ? "tool_use" : "end_turn", stop_sequence: null},
      usage: {output_tokens: 2}});
""",
)
# $1: what each agent is to do in a shell; AGENT in it is its name.
WORK = f"""
{PROVIDER}ask() {{
    name=$1 task=$2; shift 2
    printf '%s' "$task" | sed "s/AGENT/$name/g" >/tmp/command
    timeout 150 "$@" </dev/null >/tmp/said 2>/tmp/error || {{
        echo "$name failed"; tail -c 1000 /tmp/said /tmp/error /tmp/provider; exit 1
    }}
    grep -q 'scripted answer' /tmp/said && echo "$name answered"
}}
ANTHROPIC_BASE_URL={ADDRESS} ask claude-code "$1" claude --dangerously-skip-permissions -p 'do it'
mkdir -p ~/.config/opencode
echo '{{"provider": {{"anthropic": {{"options": {{"baseURL": "{ADDRESS}/v1"}}}}}}}}' \\
    >~/.config/opencode/opencode.json
ask opencode "$1" opencode run -m anthropic/claude-sonnet-4-5 'do it'
echo '{{"providers": {{"anthropic": {{"baseUrl": "{ADDRESS}"}}}}}}' >~/.pi/agent/models.json
ask pi "$1" pi --provider anthropic -p 'do it'
cat /tmp/reviewed 2>/dev/null
true
"""
EXECUTE = "echo AGENT >>by-agents && git add by-agents && git commit -qm 'by AGENT'"
REVIEW = (
    "echo AGENT $(git rev-parse HEAD) $(wc -l <by-agents) >>/tmp/reviewed; git commit -q --allow-empty -m x"
)
FIX = "sed -i s/AGENT/AGENT-fixed/ by-agents && git commit -qam 'fixed by AGENT'"
CHECK = 'test ! -e .git && test "$(cat by-agents)" = "$(printf "%s-fixed\\n" claude-code opencode pi)"'


@dataclass
class Issue:
    """The controller of one issue: it decides by signed records alone, and remembers what was certified."""

    spine: Spine
    credentials: list[str]
    certified: dict[str, str] = field(default_factory=dict)  # commit -> launch that reviewed it

    def step(self, *words: str) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
        """One launch that must end well: the predicate of its record, and what was said."""
        done = self.spine.builder("run", *words)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        launch = re.search(r"launch record: (\S+) ", done.stderr)
        assert launch, done.stderr
        shown = self.spine.builder("show", launch[1], "--json")
        (one,) = json.loads(shown.stdout)["launches"]
        return {**one["record"], "launch": launch[1]}, done

    def agents(self, task: str, *words: str) -> tuple[dict[str, Any], str]:
        """A launch in which each agent does this by its own shell tool."""
        record, done = self.step(*words, *self.credentials, "--", "sh", "-c", WORK, "sh", task)
        assert [f"{name} answered" in done.stdout for name in AGENTS] == [True] * 3, done.stdout
        assert [one["inPlace"] for one in record["credentials"]] == [True] * 3
        return record, done.stdout


@pytest.fixture
def issue(spine: Spine, tmp_path: Path) -> Issue:
    words: list[str] = []
    for route in KEYS:
        file = tmp_path / route.value
        file.write_bytes(file_of(route))
        file.chmod(0o600)
        words += ["--credential", f"{named(route)}={file}"]
    return Issue(spine, words)


def test_b3_the_real_agents_execute_review_and_fix_and_the_commit_is_exact_at_each_step(
    issue: Issue, tmp_path: Path
) -> None:
    operator = Repo.new(tmp_path / "operator")
    head = operator.commit({"readme": "one\n"}, "first")
    executed, _ = issue.agents(EXECUTE, "--source", str(operator.path))
    candidate = executed["export"]["commit"]
    assert (executed["run"]["class"], executed["source"]["commit"]) == ("execute", head)

    # A review starts from exactly that commit, and nothing of it comes out.
    reviewed, said = issue.agents(REVIEW, "--review", executed["launch"], "--commit", candidate)
    assert re.findall(r"^(\S+) ([0-9a-f]{40}) 3$", said, re.MULTILINE)[0] == ("claude-code", candidate)
    assert (reviewed["run"]["class"], reviewed["source"]["commit"]) == ("review", candidate)
    assert (reviewed["export"]["status"], reviewed["export"]["commit"]) == ("not-allowed", None)
    issue.certified[reviewed["source"]["commit"]] = reviewed["launch"]

    # A fix starts from the accepted candidate: neither from the base nor from what a review left behind.
    fixed, _ = issue.agents(FIX, "--fix", executed["launch"], "--commit", candidate)
    assert (fixed["run"]["class"], fixed["source"]["candidateOf"]) == ("fix", executed["launch"])
    assert (fixed["source"]["commit"], fixed["export"]["base"]) == (candidate, candidate)
    tip = fixed["export"]["commit"]
    assert tip not in issue.certified  # the certificate binds the commit that was reviewed, and no later one

    # Handed over under another commit's certificate, it is blocked, and shown.
    blocked = issue.spine.builder("run", "--check", fixed["launch"], "--commit", candidate, "--", "true")
    assert blocked.returncode == ExitCode.RUN_FAILED
    assert f"exported commit {tip}, not '{candidate}'" in blocked.stderr

    again, said = issue.agents(REVIEW, "--review", fixed["launch"], "--commit", tip)
    issue.certified[again["source"]["commit"]] = again["launch"]
    checked, _ = issue.step("--check", fixed["launch"], "--commit", tip, "--", "sh", "-c", CHECK)
    assert (checked["run"]["class"], checked["source"]["commit"]) == ("export-command", tip)
    assert issue.certified[tip] == again["launch"]
    assert {one["run"]["id"] for one in (executed, reviewed, fixed, again, checked)} == {
        executed["run"]["id"]
    }
    assert [one["run"]["step"] for one in (executed, reviewed, fixed, again, checked)] == [1, 2, 3, 4, 5]

    # Ready: what was certified and checked comes home by the controller's own git, and nothing came before.
    assert operator.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"
    place = issue.spine.state / "candidates" / f"{fixed['launch']}.git"
    reference = f"refs/agent-image-builder/quarantine/{fixed['launch']}"
    fetch = ["git", "-C", str(operator.path), "fetch", "--quiet", str(place), f"{reference}:refs/heads/ready"]
    subprocess.run(fetch, env={**ENVIRONMENT, "HOME": str(tmp_path)}, check=True, timeout=60)
    assert operator.git("rev-parse", "ready") == tip
    assert operator.git("show", "ready:by-agents").split() == [f"{name}-fixed" for name in AGENTS]
    assert operator.head == head
