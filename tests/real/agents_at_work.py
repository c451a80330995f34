"""The three real CLIs in one container beside a scripted provider, which tells by hash what each sent."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import socket
import subprocess
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from backend.engines.protocol import Engine
from backend.ownership import LABEL_STATE
from backend.projection.routes import Route
from images.disguises import base64_cores
from tests.fakes.projected import file_of, named
from tests.real.scripted_provider import ADDRESS, ASK, start_provider
from tests.real.spine import ROOT

Builder = Callable[..., subprocess.CompletedProcess[str]]

KEYS: Final = (Route.CLAUDE_API_KEY, Route.OPENCODE_API_KEY, Route.PI_API_KEY)
LOGINS: Final = (Route.CLAUDE_OAUTH_TOKEN, Route.OPENCODE_AUTH_FILE, Route.PI_OAUTH)
BOTH: Final = (KEYS, LOGINS)  # every route in one of two launches

# Answers as the Messages interface does, with a stream. It tells which header held something, and its hash.
PROVIDER = start_provider(
    """\
    const bearer = asked.headers.authorization?.replace(/^Bearer /, "");
    console.log(`sent key=${told(asked.headers["x-api-key"])} bearer=${told(bearer)}`);
""",
    required="""\
const {createHash} = require("node:crypto");
const told = (value) => value === undefined ? "-" : createHash("sha256").update(value).digest("hex");
""",
)
# Each agent is told where its provider is by its own settings, as an operator would. None is told of a key.
WORK = f"""
umask 077
{PROVIDER}{ASK}echo "agent is $(id -u):$(id -g)"
ANTHROPIC_BASE_URL={ADDRESS} ask claude-code claude --dangerously-skip-permissions -p hello
mkdir -p ~/.config/opencode
echo '{{"provider": {{"anthropic": {{"options": {{"baseURL": "{ADDRESS}/v1"}}}}}}}}' \\
    >~/.config/opencode/opencode.json
ask opencode opencode run -m anthropic/claude-sonnet-4-5 hello
echo '{{"providers": {{"anthropic": {{"baseUrl": "{ADDRESS}"}}}}}}' >~/.pi/agent/models.json
ask pi pi --provider anthropic -p hello
echo "shown: $(cat ~/.claude/api-key ~/.claude/.credentials.json ~/.pi/agent/auth.json 2>/dev/null)"
env | cut -d= -f1 | sort | tr '\\n' ' '
echo; ls -ld ~/.claude ~/.local/share/opencode ~/.pi/agent | cut -c1-10
"""


@dataclass
class Sweep:
    """Looks for values while a launch runs and after it: arguments, variables, the engine's word, files."""

    values: tuple[bytes, ...]
    engine: Engine
    state_id: str
    looked: dict[str, int] = field(default_factory=dict)
    found: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._forms = {form for value in self.values for form in spellings(value)}

    def look(self, place: str, data: bytes) -> None:
        """Count it, and note where a value was."""
        kind = place.partition(":")[0]
        self.looked[kind] = self.looked.get(kind, 0) + 1
        if any(form in data for form in self._forms):
            self.found.add(place)

    def files(self, kind: str, paths: Iterable[Path]) -> None:
        """Every regular file that can be read."""
        for path in paths:
            try:
                if path.is_file() and not path.is_symlink():
                    self.look(f"{kind}:{path}", path.read_bytes())
            except OSError:
                continue  # gone meanwhile, or somebody else's

    def once(self) -> None:
        """All that shows now of a launch that runs."""
        for process in Path("/proc").glob("[0-9]*"):
            self.files("argv", [process / "cmdline"])
            self.files("variables", [process / "environ"])
        for container in self.engine.list_labelled(LABEL_STATE, self.state_id):
            document = self.engine.client.ask("container", "inspect", container).stdout  # type: ignore[attr-defined]
            self.look(f"inspect:{container}", document)
            if self.engine.product == "docker":
                ids = re.findall(r'"([0-9a-f]{64})"', document.decode().partition("ExecIDs")[2][:4000])
                for one in ids:
                    self.look(f"exec:{one}", daemon_says(self.engine.facts().endpoint, f"/exec/{one}/json"))
            self.files("engine", within(Path("/var/lib/docker/containers") / container))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Again and again, until the block ends."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.5):
                self.once()

        with ThreadPoolExecutor(1) as pool:
            watcher = pool.submit(watch)
            try:
                yield
            finally:
                over.set()
            watcher.result()


def within(folder: Path) -> list[Path]:
    """What lies in it, where we may look: root's own is not an ordinary user's to see."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def spellings(value: bytes) -> set[bytes]:
    """Plain, base64 at each alignment, hexadecimal, percent, JSON escapes, UTF-16 both ways."""
    text = value.decode()
    return {
        value,
        *base64_cores(value),
        value.hex().encode(),
        value.hex().upper().encode(),
        "".join(f"%{byte:02x}" for byte in value).encode(),
        "".join(f"%{byte:02X}" for byte in value).encode(),
        "".join(f"\\u{ord(char):04x}" for char in text).encode(),
        text.encode("utf-16-le"),
        text.encode("utf-16-be"),
    }


def daemon_says(endpoint: str, path: str) -> bytes:
    """The daemon's own account of an exec, which its client does not show."""
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.connect(urllib.parse.urlsplit(endpoint).path)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def prove(builder: Builder, engine: Engine, state: Path, folder: Path, routes: tuple[Route, ...]) -> None:
    """One launch with these routes, one for each agent; what arrived; and nothing of it anywhere else."""
    folder.mkdir(mode=0o700)
    words: list[str] = []
    for route in routes:
        file = folder / route.value
        file.write_bytes(distinct(route))
        file.chmod(0o600)
        words += ["--credential", f"{named(route)}={file}"]
    sent = {route.agent.value: anthropic_value(route) for route in routes}
    hidden = tuple(sorted({*sent.values(), *refresh_tokens(routes)}))
    state_id = (state / "state-id").read_text().split()[0]
    sweep = Sweep(hidden, engine, state_id)
    before = {path.name for path in (state / "layout/blobs/sha256").iterdir()}
    with sweep.watching():
        done = builder("run", *words, "--", "sh", "-c", WORK)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "agent is 1000:1000" in done.stdout
    for route in routes:
        name, digest = route.agent.value, hashlib.sha256(sent[route.agent.value]).hexdigest()
        assert f"{name} answered" in done.stdout, done.stdout[-4000:]
        requests = re.findall(rf"^{name} sent key=(\S+) bearer=(\S+)$", done.stdout, re.MULTILINE)
        assert requests, done.stdout[-4000:]
        assert {value for pair in requests for value in pair} - {"-"} == {digest}, name
    assert "shown: " in done.stdout
    assert "[redacted]" in done.stdout.partition("shown: ")[2]
    assert "drwx------\n" * 3 in done.stdout
    assert not re.search(r"\b(ANTHROPIC_\w+|CLAUDE_CODE_OAUTH\w*|IS_SANDBOX)\b", done.stdout)
    sweep.look("output", done.stdout.encode() + done.stderr.encode())
    recorded = check_record(builder, routes, done.stderr)
    sweep.look("record", recorded)
    layout = state / "layout"
    assert {path.name for path in (layout / "blobs/sha256").iterdir()} == before  # the image is what it was
    sweep.files("state", (path for path in state.rglob("*") if layout not in path.parents))
    sweep.files("log", within(Path("/var/log/agent-image-builder")))
    sweep.files("project", within(ROOT / ".state/project"))
    assert sweep.found == set()
    wanted = {"argv", "variables", "inspect", "output", "record", "state"}
    assert wanted <= set(sweep.looked), sweep.looked
    assert engine.product != "docker" or sweep.looked.get("exec", 0) > 0, sweep.looked
    assert engine.list_labelled(LABEL_STATE, state_id) == ()


def distinct(route: Route) -> bytes:
    """Its file, with values that no other route has."""
    return file_of(route).replace(b"dummy", f"dummy{route.name.title().replace('_', '')}".encode())


def anthropic_value(route: Route) -> bytes:
    """What the provider must see of this route's file."""
    raw = distinct(route)
    found = re.search(rb'"(?:access|key)": "([^"]+)"', raw)
    return found[1] if found else raw.strip()


def refresh_tokens(routes: tuple[Route, ...]) -> set[bytes]:
    """What no one inside may see either."""
    return {found for route in routes for found in re.findall(rb'"refresh": "([^"]+)"', distinct(route))}


def check_record(builder: Builder, routes: tuple[Route, ...], told: str) -> bytes:
    """The signed record names each, and that it was in place."""
    launch = re.search(r"launch record: (\S+) ", told)
    assert launch, told
    shown = builder("show", launch[1], "--json")
    assert shown.returncode == 0, shown.stderr[-2000:]
    (one,) = json.loads(shown.stdout)["launches"]
    credentials = one["record"]["credentials"]
    assert [(each["name"], each["inPlace"]) for each in credentials] == [
        (str(name), True) for name in sorted(map(named, routes))
    ]
    return shown.stdout.encode()
