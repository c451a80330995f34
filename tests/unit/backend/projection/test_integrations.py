"""What the policy turns on reaches each agent's own settings, and nothing else turns anything on."""

from __future__ import annotations

import dataclasses
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from backend.account import Account
from backend.launch import launch
from backend.leased import adopt_leased, open_leased
from backend.plan import LaunchPlan, plan_launch
from backend.projection.asking import check_server_secrets, needs_server_secrets
from backend.projection.integrations import NO_SETUP, SPEAK_MCP, Integrations, Setup, setup_of
from backend.projection.placing import NOTHING, Projection, projection_of, with_setup
from backend.projection.projecting import project
from backend.projection.routes import Route
from backend.projection.server_secrets import MAX_SERVER_SECRET, read_server_secret
from backend.requests import LaunchClass, LaunchRequest, Supervision
from images.config import AgentName
from images.errors import LaunchReason, LaunchRefused, UsageError
from images.redaction import hide
from provenance.policy import Enable, SecretPlace
from provenance.verify import VerifiedImage
from tests.attacks import Position, attack
from tests.fakes.admitted import Bench, admitted_of, request
from tests.fakes.enabled import ALL_ON, VALUE, integrations, server_secret, turned_on, with_additions
from tests.fakes.engine import said
from tests.fakes.projected import credential, dummy, projecting_argv, take
from tests.fakes.sources import source_of
from tests.unit.backend.projection.test_projecting import Shell, home
from tests.unit.backend.test_launch import predicate_of

EVERY = tuple(AgentName)
FILES_RUN, LOOK_RUN = "/opt/mcp/files/run", "/opt/mcp/look/run"
FENCE = {
    "allowedMcpServers": [{"serverCommand": [FILES_RUN]}, {"serverCommand": [LOOK_RUN]}],
    "disableClaudeAiConnectors": True,
}


def given(*credentials: Route, enable: Enable = ALL_ON, agent: str = "", secrets: bool = True) -> Projection:
    """All that a launch would place."""
    made = projection_of(map(credential, credentials), [server_secret()] if secrets else [])
    return with_setup(made, setup_of(integrations(enable), agent, EVERY))


def contents(made: Projection) -> dict[str, Any]:
    return {file.path: json.loads(file.content.reveal()) for file in made.files()}


def planned(at: Bench, verified: VerifiedImage, **changes: Any) -> LaunchPlan:
    asked = {"projection": projection_of((), [server_secret()]), **changes}
    return plan_launch(turned_on(verified), request(**asked), at.owner)


def on_host(account: Account, made: Projection, root: Path) -> Projection:
    """The same, its links leading to directories of this machine."""
    setup = made.setup
    skills = []
    for skill in setup.integrations.skills:
        place = root / "opt" / skill.name
        place.mkdir(parents=True)
        skills.append(dataclasses.replace(skill, directory=str(place)))
    changed = dataclasses.replace(setup.integrations, skills=tuple(skills))
    assert account.home
    return with_setup(made, dataclasses.replace(setup, integrations=changed))


def test_each_agent_gets_its_own_files() -> None:
    """As the installed CLIs read them: tests/real/test_integrations.py asks the CLIs themselves."""
    files = contents(given())
    assert files == {
        ".claude.json": {
            "mcpServers": {
                "files": {"type": "stdio", "command": FILES_RUN, "args": [], "env": {"FILES_TOKEN": VALUE}},
                "look": {"type": "stdio", "command": LOOK_RUN, "args": [], "env": {}},
            }
        },
        ".claude/settings.json": FENCE,
        ".config/opencode/opencode.json": {
            "mcp": {
                "files": {
                    "type": "local",
                    "command": [FILES_RUN],
                    "environment": {"FILES_TOKEN": VALUE},
                    "enabled": True,
                },
                "look": {"type": "local", "command": [LOOK_RUN], "environment": {}, "enabled": True},
            }
        },
    }
    assert {link.path: link.target for link in given().links()} == {
        f"{folder}/review": "/opt/skills/review"
        for folder in (".claude/skills", ".config/opencode/skills", ".pi/agent/skills")
    }


@pytest.mark.parametrize("agent", AgentName)
def test_an_agent_that_runs_alone_gets_its_own_alone(agent: AgentName) -> None:
    made = given(agent=agent, secrets=agent in SPEAK_MCP)
    whose = {".claude": AgentName.CLAUDE_CODE, ".config": AgentName.OPENCODE, ".pi": AgentName.PI}
    for path in (*(file.path for file in made.files()), *(link.path for link in made.links())):
        assert whose[path.split("/")[0].removesuffix(".json")] is agent
    assert len(made.links()) == 1
    assert made.setup.names == (
        ("skills.review",) if agent is AgentName.PI else ("mcp.files", "mcp.look", "skills.review")
    )


def test_nothing_that_is_off_is_in_any_file() -> None:
    """I6: what is installed and not named by the policy is nowhere, not even as something disabled."""
    made = given(enable=Enable(mcp=("look",)), secrets=False)
    text = b"".join(file.content.reveal() for file in made.files())
    assert b"files" not in text
    assert b"review" not in text
    assert LOOK_RUN.encode() in text
    assert made.links() == ()


def test_claude_codes_key_and_fence_share_a_file() -> None:
    files = given(Route.CLAUDE_API_KEY).files()
    (settings,) = [file for file in files if file.path == ".claude/settings.json"]
    assert json.loads(settings.content.reveal()) == {"apiKeyHelper": 'cat "$HOME/.claude/api-key"', **FENCE}


def test_with_nothing_turned_on_claude_code_starts_no_server_and_a_command_is_told_nothing() -> None:
    alone = with_setup(NOTHING, setup_of(Integrations(), "claude-code", EVERY))
    assert contents(alone) == {
        ".claude/settings.json": {"allowedMcpServers": [], "disableClaudeAiConnectors": True}
    }
    assert setup_of(Integrations(), "", EVERY) == NO_SETUP
    assert with_setup(NOTHING, NO_SETUP).files() == ()


def test_an_agent_that_is_not_installed_is_told_nothing() -> None:
    setup = setup_of(integrations(), "", ("pi",))
    assert (setup.agents, setup.server_agents, setup.fenced) == ({AgentName.PI}, (), frozenset())


def test_they_arrive_private_and_the_links_lead_to_the_image(tmp_path: Path) -> None:
    account = home(tmp_path)
    made = on_host(account, given(Route.PI_OAUTH), tmp_path)
    names = project(Shell(), "c" * 64, account, made)  # type: ignore[arg-type]
    assert names == ("pi.oauth", "mcp.files", "mcp.look", "skills.review")
    root = Path(account.home)
    assert json.loads((root / ".claude.json").read_text()) == contents(made)[".claude.json"]
    for path in root.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o777 if path.is_symlink() else 0o700 if path.is_dir() else 0o600), path
    for link in made.links():
        assert (root / link.path).readlink() == Path(link.target)


@pytest.mark.parametrize("what", ["elsewhere", "nowhere"])
def test_a_link_that_leads_elsewhere_or_nowhere_is_a_refusal(what: str, tmp_path: Path) -> None:
    account = home(tmp_path)
    made = on_host(account, given(), tmp_path)
    if what == "nowhere":
        for skill in made.setup.integrations.skills:
            Path(skill.directory).rmdir()
    shell = Shell()
    if what == "elsewhere":
        honest = shell.exec

        def lie(container: str, plan: Any, **more: Any) -> Any:
            outcome = honest(container, plan, **more)
            return dataclasses.replace(outcome, stdout=outcome.stdout.replace(b"|/", b"|/tmp/../"))

        shell.exec = lie  # type: ignore[method-assign]
    with pytest.raises(LaunchRefused) as caught:
        project(shell, "c" * 64, account, made)  # type: ignore[arg-type]
    assert caught.value.reason == LaunchReason.PROJECTION
    assert VALUE not in str(caught.value)


def test_a_launch_records_what_was_turned_on_and_no_value(at: Bench, verified: VerifiedImage) -> None:
    at.engine.answers[("true",)] = said(f"out {VALUE}".encode())
    asked = request(projection=projection_of((), [server_secret()]))
    admitted = turned_on(verified)
    came = take(at.engine, plan_launch(admitted, asked, at.owner).projection)
    record = launch(at.controller, admitted, asked)
    lock = with_additions(verified).lock
    told = {"agents": ["claude-code"], "inPlace": True}
    assert predicate_of(at)["integrations"] == {
        "mcp": [
            {
                "name": "files",
                "package": "@example/server-files",
                "version": "1.2.3",
                "integrity": str(lock.artifact("npm:@example/server-files@1.2.3").integrity),
                "secrets": ["FILES_TOKEN"],
                **told,
            },
            {
                "name": "look",
                "package": "mcp-server-look",
                "version": "2026.10.24",
                "integrity": str(lock.artifact(lock.pypi_mcp[0].trees[0].root).integrity),
                "secrets": [],
                **told,
            },
        ],
        "skills": [
            {
                "name": "review",
                "integrity": str(lock.artifact("skill:review").integrity),
                "agents": ["claude-code", "pi"],
                "inPlace": True,
            }
        ],
        "fenced": ["claude-code"],
    }
    assert len(came) == 1
    assert VALUE.encode() in came[0]
    kept = b"".join(path.read_bytes() for path in at.leases.parent.rglob("*") if path.is_file())
    shown = repr((record, asked, admitted)).encode() + b"\0".join(
        "\0".join(argv).encode() for argv in at.engine.answers
    )
    assert VALUE.encode() not in record.statement.raw + record.bundle.raw + kept + shown


def test_what_was_not_placed_is_recorded_so(at: Bench, verified: VerifiedImage) -> None:
    admitted = turned_on(verified, Enable(skills=("review",)))
    made = plan_launch(admitted, request(), at.owner).projection
    at.engine.answers[projecting_argv(made)] = said(exit_code=1, stderr=b"tar: no room")
    with pytest.raises(LaunchRefused):
        launch(at.controller, admitted, request())
    assert [one["inPlace"] for one in predicate_of(at)["integrations"]["skills"]] == [False]


def test_a_leased_launch_has_them_and_so_has_who_adopts_it(at: Bench, verified: VerifiedImage) -> None:
    admitted = turned_on(verified, Enable(skills=("review",)))
    asked = request(command=(), supervision=Supervision.LEASED)
    take(at.engine, plan_launch(admitted, asked, at.owner).projection)
    held = open_leased(at.controller, admitted, asked)
    assert held.seen.projected == ("skills.review",)
    (at.leases / at.owner.lease_id).unlink()
    adopted = adopt_leased(at.controller, admitted, asked, at.leases)
    assert adopted.seen.projected == ("skills.review",)
    adopted.close()


def test_a_command_over_files_is_told_nothing(at: Bench, verified: VerifiedImage) -> None:
    plan = planned(
        at,
        verified,
        launch_class=LaunchClass.EXPORT_COMMAND,
        source=source_of(at.leases.parent),
        projection=NOTHING,
    )
    assert plan.projection.setup == NO_SETUP
    assert not needs_server_secrets(LaunchClass.EXPORT_COMMAND, "")


@attack(by=Position.CONFIG_AUTHOR)
def test_a_request_cannot_turn_anything_on(at: Bench, verified: VerifiedImage) -> None:
    """Whatever a caller hands over, the plan has what the policy says."""
    made = with_setup(NOTHING, setup_of(integrations(), "", EVERY))
    plan = plan_launch(admitted_of(verified), request(projection=made), at.owner)
    assert plan.projection.setup == NO_SETUP
    assert plan.projection.files() == ()
    fields = {field.name for field in dataclasses.fields(LaunchRequest)}
    assert not fields & {"integrations", "enable", "mcp", "skills", "setup"}


UNMET = {
    "an unknown server": (Enable(mcp=("nowhere",)), LaunchReason.NOT_INSTALLED, "nowhere"),
    "an unknown Skill": (Enable(skills=("files",)), LaunchReason.NOT_INSTALLED, "the image has review"),
    "a variable that the server does not read": (
        Enable(mcp=("look",), secrets=(SecretPlace("look", "FILES_TOKEN", None),)),
        LaunchReason.SERVER_SECRET,
        "LOOK_AT",
    ),
}


@pytest.mark.parametrize("what", UNMET)
def test_what_the_lock_does_not_have_is_not_left_out_in_silence(what: str, verified: VerifiedImage) -> None:
    enable, reason, word = UNMET[what]
    with pytest.raises(LaunchRefused, match=word) as caught:
        turned_on(verified, enable)
    assert caught.value.reason == reason
    assert "policy.toml" in caught.value.hint


def test_exactly_the_values_that_the_policy_names(at: Bench, verified: VerifiedImage) -> None:
    wrong = [
        (),
        (server_secret("files", "OTHER"),),
        (server_secret(), server_secret("look", "FILES_TOKEN")),
        (server_secret(), server_secret()),
    ]
    for secrets in wrong:
        with pytest.raises(LaunchRefused) as caught:
            planned(at, verified, projection=projection_of((), secrets))
        assert caught.value.reason == LaunchReason.SERVER_SECRET
        assert VALUE not in f"{caught.value} {caught.value.hint}"
    with pytest.raises(LaunchRefused):  # Pi starts no server, so none of its values goes in
        planned(at, verified, agent="pi", command=())
    assert planned(at, verified, agent="pi", command=(), projection=NOTHING).projection.setup.agents
    check_server_secrets(NOTHING, LaunchClass.EXECUTE, "", Integrations())


def test_a_value_is_refused_in_arguments_and_labels_and_hidden_in_output(
    at: Bench, verified: VerifiedImage
) -> None:
    for changes in ({"command": ("echo", VALUE)}, {"scope": VALUE}):
        with pytest.raises(UsageError, match="looks like a credential") as caught:
            planned(at, verified, **changes)
        assert VALUE not in f"{caught.value} {caught.value.hint}"
    plan = planned(at, verified)
    assert VALUE not in hide(f"said {VALUE}", plan.request.projection.secrets)


WRONG = [
    b"",
    b"short\n",
    b"x" * (MAX_SERVER_SECRET + 1),
    b"two lines\nof text",
    b"with a blank",
    b"${HOME}/token-1234",
    b"{env:ANTHROPIC_API_KEY}",
    b"a{file:/etc/passwd}b",
    b'quote"quote"quote',
    "wörtlich-1234".encode(),
    b"\xff" * 20,
    b"-looks-like-an-option",
]


@pytest.mark.parametrize("raw", WRONG, ids=range(len(WRONG)))
def test_what_is_no_plain_value_is_refused(raw: bytes) -> None:
    """Agents put variables and files in the place of some texts; none of these gets so far."""
    with pytest.raises(UsageError) as caught:
        read_server_secret("files", "FILES_TOKEN", raw)
    assert not raw or raw.decode("latin-1") not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("server", "variable", "value"),
    [
        ("files", "FILES_TOKEN", "gh" + "p_" + "a1" * 18),
        ("files", "GITHUB_TOKEN", VALUE),
        ("files", "MY_GITLAB_PAT", VALUE),
        ("bitbucket", "FILES_TOKEN", VALUE),
        ("files", "FILES_TOKEN", "postgres://me:word@db/issues"),
    ],
)
def test_what_could_write_to_git_hosting_goes_to_no_server(server: str, variable: str, value: str) -> None:
    with pytest.raises(LaunchRefused) as caught:
        read_server_secret(server, variable, value.encode())
    assert caught.value.reason == LaunchReason.CREDENTIAL_FOR_HOSTING
    assert value not in str(caught.value)


def test_setup_shows_no_value() -> None:
    made = given()
    assert VALUE not in repr((made, made.files(), made.setup))
    assert made.key_in(f"x{VALUE}y") == "files.FILES_TOKEN"
    assert isinstance(made.setup, Setup)
    assert dummy("key") not in repr(made)
