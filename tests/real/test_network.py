"""A run's network on a real engine, in a private network: the three CLIs reach their model and nothing else.

Needs a network of its own: ``unshare --net --mount -- python -m tests.real.private_network pytest …``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from backend.projection.routes import Route
from tests.attacks import Position, attack
from tests.fakes.projected import file_of, named
from tests.real.network_desk import CEILING, SIBLINGS, NetworkDesk
from tests.real.private_network import ADDRESS, SIX
from tests.real.scripted_internet import DOMAIN, LOGIN, MODEL

pytestmark = pytest.mark.real

# Each agent is told where its provider is by its own settings, as an operator would.
AGENTS: dict[Route, str] = {
    Route.CLAUDE_API_KEY: f"""
ANTHROPIC_BASE_URL=https://{MODEL} exec claude --dangerously-skip-permissions -p hello
""",
    Route.OPENCODE_API_KEY: f"""
mkdir -p ~/.config/opencode
echo '{{"provider": {{"anthropic": {{"options": {{"baseURL": "https://{MODEL}/v1"}}}}}}}}' \\
    >~/.config/opencode/opencode.json
exec opencode run -m anthropic/claude-sonnet-4-5 hello
""",
    Route.PI_API_KEY: f"""
echo '{{"providers": {{"anthropic": {{"baseUrl": "https://{MODEL}"}}}}}}' >~/.pi/agent/models.json
exec pi --provider anthropic -p hello
""",
}
HERE = Path(__file__).parent
PLACES = {"MODEL": MODEL, "UPPER": MODEL.upper(), "ADDRESS": ADDRESS, "SIX": SIX, "DOMAIN": DOMAIN}
TOOLS, BYPASSES = (
    re.sub(r"@([A-Z]+)@", lambda found: PLACES[found[1]], (HERE / f"network_{name}.js").read_text())
    for name in ("tools", "bypasses")
)
NO_ROUTE = {"ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "EINVAL"}
NO_NAME = {"EAI_AGAIN", "ENOTFOUND", "ESERVFAIL", "ECONNREFUSED"}
NOT_YOURS = {"EROFS", "EACCES", "EPERM"}


@pytest.fixture
def desk(network_desk: NetworkDesk) -> NetworkDesk:
    return network_desk


@pytest.mark.parametrize("route", AGENTS, ids=lambda route: route.agent.value)
def test_s_27_an_agent_reaches_its_model_and_what_else_it_tries_is_told(
    desk: NetworkDesk, route: Route, tmp_path: Path
) -> None:
    file = tmp_path / route.value
    file.write_bytes(file_of(route))
    file.chmod(0o600)
    desk.world.heard.clear()
    desk.world.asked.clear()
    done = desk.run(
        *("--deadline", "120s", "--credential", f"{named(route)}={file}", "--", "sh", "-c", AGENTS[route])
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "scripted answer" in done.stdout, done.stdout[-4000:]
    assert f"{MODEL}/v1/messages" in desk.world.heard
    assert {line.partition("/")[0] for line in desk.world.heard} == {MODEL}
    assert set(desk.world.asked) == {MODEL}
    assert f"network: {MODEL}:443, and nothing else" in done.stderr
    record = desk.record(done.stderr)
    assert record["settings"]["inside"]["interfaces"] == ["lo"]
    assert record["settings"]["network"] == "none"
    assert record["network"]["allow"] == [f"{MODEL}:443"]
    carried = [one for one in record["network"]["attempts"] if one["host"] == MODEL]
    assert {(one["port"], one["resolvedBy"]) for one in carried} == {(443, "controller")}
    assert {one["address"] for one in carried} <= {ADDRESS, SIX}
    assert {one["decision"] for one in carried} <= {"carried", "cut-at-the-end"}
    others = [one for one in record["network"]["attempts"] if one["host"] != MODEL]
    assert {one["decision"] for one in others} <= {"not-listed"}
    # OpenCode alone looks for a library of its plugins, in the background, whatever it is told.
    assert len({one["host"] for one in others}) <= (1 if route is Route.OPENCODE_API_KEY else 0)
    for one in others:
        assert f"network: refused {one['host']}:{one['port']}: not-listed" in done.stderr


@attack(by=Position.AGENT)
def test_every_way_around_the_list_ends_in_a_word(desk: NetworkDesk) -> None:
    desk.world.asked.clear()
    desk.world.stray.clear()
    done = desk.run("--", "node", "-e", TOOLS + BYPASSES)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    found = dict(json.loads(line) for line in done.stdout.splitlines())
    for name in ("a raw address", "a raw IPv6 address", "metadata", "a public resolver", "a datagram"):
        assert found[name] in NO_ROUTE, (name, found[name])
    for name in ("the name", "without the variables"):
        assert found[name] in NO_NAME, (name, found[name])
    assert found["with the variables"] == "404"
    for name in ("listed", "listed, in capitals", "listed, past the relay", "after a flood"):
        assert found[name] == "HTTP/1.1 200 Connection established", (name, found[name])
    assert found["after the relay was killed"] == "HTTP/1.1 200 Connection established"
    for name, said in found.items():
        if name.startswith("other"):
            assert said == "HTTP/1.1 403 Not on the list of this run", (name, said)
        if name.startswith("form"):
            assert said in ("HTTP/1.1 400 Not a request of one form", "ECONNRESET", "EPIPE"), (name, said)
    assert found["method: GET"] == "HTTP/1.1 405 CONNECT is the only method"
    assert found["slow"] == "HTTP/1.1 408 Too slow"
    for name in ("remove the socket", "another socket", "rename the socket", "open the directory"):
        assert found[name] in NOT_YOURS, (name, found[name])
    assert found["change the relay"] in NOT_YOURS
    assert found["interfaces"] == "lo"
    assert set(desk.world.asked) == {MODEL}
    assert desk.world.stray == []
    attempts = desk.record(done.stderr)["network"]["attempts"]
    assert {one["host"] for one in attempts if one["decision"].startswith("ca")} == {MODEL}
    assert f"c2vjcmv0.tunnel.{DOMAIN}" in {one["host"] for one in attempts}


def test_a_listed_name_that_leads_to_this_machine_is_refused_also_the_second_time(desk: NetworkDesk) -> None:
    answers = iter([(ADDRESS,), ("127.0.0.1",)])
    flip: dict[str, tuple[str, ...]] = {}

    def rebinding() -> tuple[str, ...]:
        # Both kinds of address are asked for at once: two questions make one turn.
        if flip.pop("again", None) is None:
            flip["now"] = next(answers, ("127.0.0.1",))
            flip["again"] = ()
        return flip["now"]

    desk.world.names |= {
        f"rebind.{DOMAIN}": rebinding,
        f"private.{DOMAIN}": lambda: ("10.0.0.1",),
        f"mixed.{DOMAIN}": lambda: (ADDRESS, "192.168.1.1"),
        f"six.{DOMAIN}": lambda: ("::1", "fd00::1", "::ffff:127.0.0.1"),
        f"metadata.{DOMAIN}": lambda: ("169.254.169.254",),
    }
    desk.world.stray.clear()
    targets = [f"{name}.{DOMAIN}:443" for name in ("rebind", "rebind", *SIBLINGS[1:6])]
    script = f"(async () => {{ for (const one of {json.dumps(targets)}) say(one, await connect(one)) }})()"
    done = desk.run("--", "node", "-e", TOOLS + script, allow=CEILING)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    said = [json.loads(line)[1] for line in done.stdout.splitlines()]
    assert said == [
        "HTTP/1.1 200 Connection established",
        *["HTTP/1.1 403 Not a public address"] * 5,
        "HTTP/1.1 502 No such name",
    ]
    assert desk.world.stray == []
    decisions = [one["decision"] for one in desk.record(done.stderr)["network"]["attempts"]]
    assert decisions[1:] == [*["private-address"] * 5, "unresolved"]


def test_the_operators_proxy_is_used_from_outside_and_unknown_inside(desk: NetworkDesk) -> None:
    file = desk.folder / "proxy.toml"
    file.write_text(f'https = "http://{LOGIN}@{ADDRESS}:3128"\n')
    file.chmod(0o600)
    desk.settings(f'proxy_file = "{file}"')
    desk.world.asked.clear()
    desk.world.proxied.clear()
    target = f"behind.{DOMAIN}"
    script = (
        f"fetch('https://{target}/x').then((answer) => say('status', answer.status)); say('all', process.env)"
    )
    try:
        done = desk.run(
            *("--", "env", "NODE_USE_ENV_PROXY=1", "node", "-e", TOOLS + script), allow=[f"{target}:443"]
        )
    finally:
        desk.settings()
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert '["status",404]' in done.stdout
    assert desk.world.proxied == [(f"{target}:443", True)]
    assert desk.world.asked == []
    record = desk.record(done.stderr)
    (one,) = record["network"]["attempts"]
    assert (one["resolvedBy"], one["address"], one["host"]) == ("proxy", "", target)
    assert record["network"]["upstreamProxy"] is True
    word = LOGIN.partition(":")[2]
    for place in (done.stdout, done.stderr, json.dumps(record)):
        assert word not in place
        assert f"{ADDRESS}:3128" not in place


def test_a_plan_says_what_a_run_may_reach_and_more_than_the_policy_is_refused(desk: NetworkDesk) -> None:
    planned = desk.run("--dry-run", "--", "true")
    assert planned.returncode == 0, planned.stderr[-2000:]
    assert f"allow: {MODEL}:443" in planned.stderr
    assert "network: none" in planned.stderr
    refused = desk.run("--dry-run", "--", "true", allow=["elsewhere.example.test:443"])
    assert refused.returncode == 8
    assert 'add "elsewhere.example.test:443" to network in policy.toml' in refused.stderr


def test_every_agent_is_tried() -> None:
    assert sorted(route.agent for route in AGENTS) == sorted({route.agent for route in Route})
