"""A project of tiny packages in a state of its own: the real command line, in seconds instead of minutes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from builder.bootstrap import Bootstrapped
from builder.resources import resource
from builder.state import State
from images.config import parse_config
from images.lock import config_digest
from images.lockfile import lock_bytes
from provenance.layout import open_image
from tests.fakes.locks import BASE_DIGEST, BUILDER_TOML
from tests.fakes.tarballs import POSTINSTALL, File, tiny_set
from tests.real.layouts import copy_state
from tests.results import check_printed

BUILDER = Path(sys.executable).with_name("builder")
# Another umask, processor count, time zone, locale and, where root asks, host name than the first build had.
_SHELL = ("sh", "-c", 'umask 0077; exec "$@"', "sh", "taskset", "--cpu-list", "0")
_NAMED = ("unshare", "--uts", "sh", "-c", 'hostname elsewhere; exec "$@"', "sh")
ELSEWHERE = (*_NAMED, *_SHELL) if os.geteuid() == 0 else _SHELL
TONGUE = {"TZ": "Asia/Tokyo", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"}


@dataclass(frozen=True)
class Tiny:
    """A state, a configuration directory, and where projects go."""

    engine: str
    root: Path
    bootstrapped: Bootstrapped

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def state_id(self) -> str:
        return (self.state / "state-id").read_text().split()[0]

    def project(
        self,
        name: str,
        *,
        script: str = POSTINSTALL,
        changes: dict[str, dict[str, File]] | None = None,
    ) -> Path:
        """A folder with builder.toml and its lock; the artifacts are in the state's store."""
        base = open_image(self.state / "layout", self.bootstrapped.base)
        text = BUILDER_TOML.replace(str(BASE_DIGEST), str(base.digest)).replace("team/agents", f"team/{name}")
        template = resource("Containerfile.in").read_text()
        lock = tiny_set(self.state, base, template, script=script, changes=changes).lock
        lock = replace(lock, config=config_digest(parse_config(text, where="builder.toml")))
        folder = self.root / name
        folder.mkdir()
        (folder / "builder.toml").write_text(text)
        (folder / "builder.lock").write_bytes(lock_bytes(lock))
        return folder

    def argv(self, *words: str, engine: str = "", config: Path | None = None) -> list[str]:
        where = ["--state", str(self.state), "--config-dir", str(config or self.config)]
        at = words.index("--") if "--" in words else len(words)
        return [str(BUILDER), *words[:at], *where, "--engine", engine or self.engine, *words[at:]]

    def builder(
        self,
        *words: str,
        cwd: Path,
        engine: str = "",
        config: Path | None = None,
        prefix: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Type a command; ``prefix`` goes in front of it."""
        done = subprocess.run(
            [*prefix, *self.argv(*words, engine=engine, config=config)],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        check_printed(words, done.stdout)
        return done

    def containers(self, *, running: bool = False) -> list[str]:
        """Those of this state root alone; ended ones too, unless ``running``."""
        which = "-q" if running else "-aq"
        listed = subprocess.run(
            [self.engine, "ps", which, "--filter", f"label=agent-image-builder.state={self.state_id}"],
            capture_output=True,
            text=True,
            check=True,
        )
        return listed.stdout.split()

    def staged(self) -> list[Path]:
        """Work that was left in the state: directories, turns, leases of processes."""
        found = [path for name in ("staging", "turns", "leases") for path in (self.state / name).iterdir()]
        return [path for path in found if path.name != "recovery.lock"]


def make_tiny(engine: str, kept: State, bootstrapped: Bootstrapped, root: Path) -> Tiny:
    """A copy of the kept state, and a configuration that `builder init` makes with a rebuilder's key."""
    tiny = Tiny(engine, root, bootstrapped)
    copy_state(kept.root, tiny.state)
    (tiny.state / "marks.json").unlink(missing_ok=True)  # of another policy; init makes those of its own
    scratch = root / "first"
    done = tiny.builder("init", str(scratch), "--unencrypted-keys", "--rebuilder", cwd=root)
    assert done.returncode == 0, done.stderr
    # What init has probed holds for the next copy too: it names boot, engine and base.
    for answers in (tiny.state / "probe").glob("*.json"):
        shutil.copy2(answers, kept.probe / answers.name)
    return tiny
