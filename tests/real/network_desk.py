"""A project with the three real CLIs, built and attested for one engine, in a private network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from backend.engines.protocol import Engine
from builder.bootstrap import Bootstrapped
from builder.state import State
from provenance.layout import list_images, open_image
from tests.real.private_network import is_private
from tests.real.scripted_internet import DOMAIN, MODEL, Internet, internet
from tests.real.scripted_oauth import MODEL_HOST, TOKEN_HOST
from tests.real.spine import PROJECT
from tests.real.tiny import Tiny, make_tiny

SIBLINGS: Final = ("rebind", "private", "mixed", "six", "metadata", "nobody", "behind")
CEILING: Final = [f"{MODEL}:443", *(f"{name}.{DOMAIN}:443" for name in SIBLINGS)]
ACCOUNT_HOSTS: Final = [f"{MODEL_HOST}:443", f"{TOKEN_HOST}:443"]


@dataclass
class NetworkDesk:
    """``world``: what lies behind the network. ``folder``: a directory of the test's own."""

    tiny: Tiny
    engine: Engine
    project: Path
    world: Internet
    folder: Path

    def allow(self, allow: list[str]) -> None:
        """What runs of this project reach from now on."""
        toml = self.project / "builder.toml"
        toml.write_text(
            re.sub(r"^allow = .*$", f"allow = {json.dumps(allow)}", toml.read_text(), flags=re.MULTILINE)
        )

    def run(self, *words: str, allow: list[str] | None = None) -> subprocess.CompletedProcess[str]:
        self.allow([f"{MODEL}:443"] if allow is None else allow)
        return self.tiny.builder("run", *words, cwd=self.project)

    def record(self, told: str) -> dict[str, Any]:
        launch = re.search(r"launch record: (\S+) ", told)
        assert launch, told
        shown = self.tiny.builder("show", launch[1], "--json", cwd=self.project)
        assert shown.returncode == 0, shown.stderr[-2000:]
        (one,) = json.loads(shown.stdout)["launches"]
        found: dict[str, Any] = one["record"]
        return found

    def settings(self, *lines: str) -> None:
        file = self.tiny.config / "settings.toml"
        file.write_text("\n".join(("schema = 1", f'ca_bundle = "{self.world.ca}"', *lines, "")))


@contextmanager
def at_network_desk(
    engine: Engine, kept_state: State, bootstrapped: Bootstrapped, folder: Path
) -> Iterator[NetworkDesk]:
    """All of it while this lasts; afterwards nothing is left of it in the engine."""
    assert is_private(), "this needs a network of its own: see tests/real/private_network.py, and tools/test"
    root = folder / "desk"
    root.mkdir()
    (folder / "internet").mkdir()
    with internet(folder / "internet") as world:
        tiny = make_tiny(engine.product, kept_state, bootstrapped, root)
        before = {entry.digest for entry in list_images(kept_state.layout)}
        project = Path(shutil.copytree(PROJECT, tiny.root / "full"))
        policy = tiny.config / "policy.toml"
        text = re.sub(r"^serial = .*$", "serial = 2", policy.read_text(), flags=re.MULTILINE)
        text = re.sub(r"^network = .*\n", "", text, flags=re.MULTILINE)
        ceiling = json.dumps([*CEILING, *ACCOUNT_HOSTS])
        policy.write_text(text.replace("schema = 1\n", f"schema = 1\nnetwork = {ceiling}\n", 1))
        made = NetworkDesk(tiny, engine, project, world, tiny.root)
        made.settings()
        for words in (("build",), ("verify", "--attest")):
            done = tiny.builder(*words, cwd=project)
            assert done.returncode == 0, done.stderr[-3000:]
        yield made
        assert tiny.containers() == []
        assert list((tiny.state / "staging").iterdir()) == []
        for entry in list_images(tiny.state / "layout"):
            if entry.digest not in before:
                loaded = engine.find_image(open_image(tiny.state / "layout", entry.digest))
                if loaded is not None:
                    engine.remove_image(loaded)
