"""MCP servers and Skills that the policy turns on, inside the real CLIs; what is off is nowhere."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from backend.engines.protocol import Engine
from builder.bootstrap import Bootstrapped
from builder.state import State
from images.errors import ExitCode
from images.lockfile import parse_lock
from tests.real.agents_at_work import Sweep
from tests.real.desk import Desk, make_desk
from tests.real.scripted_provider import ADDRESS, ASK, start_provider
from tests.real.spine import ROOT, refused

pytestmark = pytest.mark.real

SERVER = '{ npm = "@modelcontextprotocol/server-filesystem", version = "2026.8.31", args = ["/workspace"]'
TOML = f"""\
schema = 1

[image]
name = "tests/integrations"
base = "debian-minimal@BASE"

[agents]
claude-code = "2.1.328"
opencode = "1.18.33"
pi = "0.73.1"

[node]
version = "22.23.5"
install-scripts = ["@anthropic-ai/claude-code", "opencode-ai"]

[mcp]
files = {SERVER}, env = ["FILES_TOKEN"] }}
quiet-server = {SERVER} }}

[skills]
code-review = "skills/code-review"
quiet-skill = "skills/quiet-skill"
"""
VALUE = "dummy-value-" + "0123456789abcdef"
ON = """
[enable]
mcp = ["files"]
skills = ["code-review"]

[enable.secrets.files]
FILES_TOKEN = "file:secrets/files-token"
"""

# Answers as the Messages interface does, and tells which of the words it knows were in what it was asked.
PROVIDER = start_provider(
    """\
    for (const word of ["code-review", "quiet-skill", "files_list_directory", "quiet-server", "evil"])
      if (body.includes(word)) console.log(`told ${word}`);
""",
)
# A repository that brings a server of its own, which leaves a mark when it is started.
EVIL = json.dumps({"mcpServers": {"evil": {"command": "sh", "args": ["-c", "touch /tmp/evil; cat"]}}})
WORK = f"""
umask 077
echo {shlex.quote(EVIL)} >/workspace/.mcp.json
{PROVIDER}(while sleep 0.1; do
    for place in /proc/[0-9]*; do
        tr '\\0' '\\n' <$place/environ 2>/dev/null | grep -q '^FILES_TOKE[N]=' &&
            tr '\\0' ' ' <$place/cmdline && echo
    done
done >/tmp/holders 2>/dev/null) &
{ASK}echo "== claude"; claude mcp list 2>&1
echo "== opencode"; opencode mcp list 2>&1
echo "== asked"
ANTHROPIC_BASE_URL={ADDRESS} ask claude-code claude --dangerously-skip-permissions -p hello
echo '{{"provider": {{"anthropic": {{"options": {{"baseURL": "{ADDRESS}/v1"}}}}}}}}' >/workspace/opencode.json
ask opencode opencode run -m anthropic/claude-sonnet-4-5 hello
echo '{{"providers": {{"anthropic": {{"baseUrl": "{ADDRESS}"}}}}}}' >~/.pi/agent/models.json
ask pi pi --provider anthropic -p hello
echo "== files"
[ -e /tmp/evil ] && echo "the repository's server was started"
cd ~; find . -maxdepth 4 -type l -exec readlink {{}} + | sort -u
touch ~/.claude/skills/code-review/mark 2>&1 | grep -o 'Read-only\\|Permission denied'
stat -c '%a %U %n' .claude.json .config/opencode/opencode.json
grep -rl quiet- ~/.claude* ~/.config ~/.pi ~/.local 2>/dev/null | head -3
echo "shown: $(cat .claude.json)"
echo "== holders"; sort -u /tmp/holders
"""


class ServersApart(Sweep):
    """Variables of the servers themselves are where the value belongs."""

    def files(self, kind: str, paths: Iterable[Path]) -> None:
        """As above; a process is told by its arguments, read after its variables."""
        if kind != "variables":
            super().files(kind, paths)
            return
        for path in paths:
            try:
                data = path.read_bytes()
                if b"/opt/mcp/files" not in path.with_name("cmdline").read_bytes():
                    self.look(f"{kind}:{path}", data)
            except OSError:
                continue


@pytest.fixture(scope="module")
def desk(
    engine_name: str, kept_state: State, bootstrapped: Bootstrapped, tmp_path_factory: pytest.TempPathFactory
) -> Desk:
    toml = TOML.replace("BASE", str(bootstrapped.base))
    made = make_desk(engine_name, kept_state, tmp_path_factory.mktemp("integrations"), toml)
    skills = made.project / "skills"
    shutil.copytree(ROOT / "examples/full/skills", skills)
    (skills / "quiet-skill").mkdir()
    (skills / "quiet-skill/SKILL.md").write_text("---\nname: quiet-skill\ndescription: Stays off.\n---\n")
    made.builder("lock")
    made.builder("build")
    made.builder("verify", "--attest")
    secret = made.root / "config/secrets/files-token"
    secret.parent.mkdir(mode=0o700)
    secret.write_text(VALUE + "\n")
    secret.chmod(0o600)
    key = made.root / "key"
    key.write_text("sk-a-key-of-no-provider-0123456789\n")
    key.chmod(0o600)
    return made


def policy(desk: Desk, more: str) -> None:
    """The same policy with this at its end, and a serial that is higher."""
    path = desk.root / "config/policy.toml"
    text = path.read_text().partition("\n[enable")[0]
    serial = int(re.search(r"^serial = (\d+)$", text, re.MULTILINE)[1])  # type: ignore[index]
    path.write_text(
        text.replace(f"serial = {serial}\n", f"serial = {serial + 1}\n").rstrip("\n") + "\n" + more
    )


def section(said: str, name: str) -> list[str]:
    """The lines below ``== name``."""
    return said.partition(f"== {name}\n")[2].partition("\n== ")[0].splitlines()


ROUTES = ("claude-code.api-key", "opencode.api-key.anthropic", "pi.api-key.anthropic")


def test_what_the_policy_turns_on_answers_inside_the_real_agents_and_nothing_else(
    desk: Desk, engine: Engine
) -> None:
    """I6: one server and one Skill of two each. The value is with that server, and nowhere on the host."""
    policy(desk, ON)
    state_id = (desk.state / "state-id").read_text().split()[0]
    sweep = ServersApart((VALUE.encode(),), engine, state_id)
    keys = [word for route in ROUTES for word in ("--credential", f"{route}={desk.root / 'key'}")]
    with sweep.watching():
        done = desk.type("run", *keys, "--", "sh", "-c", WORK)
    said = done.stdout
    assert done.returncode == 0, (said + done.stderr)[-4000:]
    claude, opencode = "\n".join(section(said, "claude")), "\n".join(section(said, "opencode"))
    assert re.search(r"^files: /opt/mcp/files/run .*Connected", claude, re.MULTILINE), claude
    assert "✓ files" in opencode, opencode
    assert "1 server(s)" in opencode
    assert not re.search("quiet|evil", claude + opencode)
    assert section(said, "asked") == [
        *("claude-code answered", "claude-code told code-review"),
        *("opencode answered", "opencode told code-review", "opencode told files_list_directory"),
        *("pi answered", "pi told code-review"),
    ]
    files = section(said, "files")
    assert files[:4] == [
        "/opt/skills/code-review",
        "Read-only",
        "600 agent .claude.json",
        "600 agent .config/opencode/opencode.json",
    ]
    shown_file = "\n".join(files[4:])  # Claude Code writes it again, in lines of its own
    assert shown_file.startswith("shown: {"), files
    assert "[redacted]" in shown_file
    holders = section(said, "holders")
    assert holders
    assert all("/opt/mcp/files" in line for line in holders), holders
    shown = recorded(desk, done.stderr)
    sweep.look("output", (said + done.stderr).encode())
    sweep.look("record", json.dumps(shown).encode())
    sweep.files(
        "state", (path for path in desk.state.rglob("*") if desk.state / "layout" not in path.parents)
    )
    assert sweep.found == set()
    assert {"argv", "variables", "inspect", "output", "record", "state"} <= set(sweep.looked)
    lock = parse_lock((desk.project / "builder.lock").read_bytes())
    both = ["claude-code", "opencode"]
    assert shown == {
        "mcp": [
            {
                "name": "files",
                "package": "@modelcontextprotocol/server-filesystem",
                "version": "2026.8.31",
                "integrity": str(lock.artifact(lock.mcp[0].root).integrity),
                "agents": both,
                "secrets": ["FILES_TOKEN"],
                "inPlace": True,
            }
        ],
        "skills": [
            {
                "name": "code-review",
                "integrity": str(lock.artifact("skill:code-review").integrity),
                "agents": [*both, "pi"],
                "inPlace": True,
            }
        ],
        "fenced": ["claude-code"],
    }


def recorded(desk: Desk, told: str) -> object:
    """What the signed record says of them."""
    launch = re.search(r"launch record: (\S+) ", told)
    assert launch, told
    (one,) = json.loads(desk.builder("show", launch[1], "--json"))["launches"]
    return one["record"]["integrations"]


def test_with_no_word_of_the_policy_no_agent_has_any(desk: Desk) -> None:
    policy(desk, "")
    said = desk.builder(
        "run",
        "--",
        "sh",
        "-c",
        "claude mcp list 2>&1; opencode mcp list 2>&1; opencode debug skill 2>&1 | grep '\"name\"';"
        " ls -d ~/.claude/skills ~/.config/opencode/skills ~/.pi 2>/dev/null; true",
    )
    assert "No MCP servers configured" in said
    assert "/opt/mcp" not in said
    assert "code-review" not in said


def test_what_the_image_does_not_have_is_refused_and_no_flag_turns_anything_on(desk: Desk) -> None:
    policy(desk, '[enable]\nmcp = ["nowhere"]\n')
    refused(desk.type("run", "--dry-run", "--", "true"), ExitCode.REFUSED, "nowhere", "files, quiet-server")
    refused(desk.type("run", "--", "true"), ExitCode.RUN_FAILED, "policy.toml")
    policy(desk, ON)
    planned = json.loads(desk.builder("run", "--dry-run", "--json", "--agent", "pi"))["plan"]["integrations"]
    assert planned == {
        "turned_on": ["skills.code-review"],
        "agents": ["pi"],
        "server_secrets": [],
        "fenced": [],
    }
    for words in (("--enable", "mcp.files"), ("--mcp", "files"), ("--skill", "code-review")):
        assert desk.type("run", *words, "--", "true").returncode == ExitCode.RUN_FAILED


def test_a_repositorys_server_is_not_started_unasked(desk: Desk) -> None:
    """Where nothing is turned on, Claude Code as the agent of the launch is told to start none."""
    policy(desk, "")
    said = desk.builder("run", "--agent", "claude-code", "--", "mcp", "list")
    assert "No MCP servers configured" in said
    planned = json.loads(desk.builder("run", "--dry-run", "--json", "--agent", "claude-code"))["plan"]
    assert planned["integrations"]["fenced"] == ["claude-code"]
