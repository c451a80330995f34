"""Every command that README and docs show is typed here, in order, as a reader would."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.newcomer import DOCUMENT as FIRST_AGENT
from builder.state import State
from tests.docs.documents import ROOT, Example, examples
from tests.real.layouts import copy_state
from tests.real.registries import build, serving
from tests.real.small import write_small_project
from tests.real.spine import BUILDER, Spine

pytestmark = pytest.mark.real

# Typed by others: the first by tools/test or the spine's fixture, the second is what runs this test.
GUARDED, LOST = "docs/how-to/protect-the-keys.md", "docs/how-to/lose-a-key.md"
OFFLINE, TEAM = "docs/tutorial/offline.md", "docs/tutorial/team-and-ci.md"
# Who begins here has nothing; all other pages start where the first of them ends.
FIRST_IMAGE = "docs/tutorial/first-image.md"
FRESH = (FIRST_IMAGE, FIRST_AGENT)
# These build anew, from a small project; all but the first start with its image.
SMALL = (GUARDED, LOST, OFFLINE, TEAM)
# Put before the program: an agent's run is where its provider is; who has the archive has no network.
THROUGH = {
    FIRST_AGENT: '[ "$verb" != run ] || set -- inside "$@"',
    **dict.fromkeys((OFFLINE, TEAM), 'case "$*" in *" --state "*) set -- unshare --net -- "$@" ;; esac'),
}
SHARED = "docs/how-to/share-through-a-registry.md"  # its reader has a registry
WRAPPER = """\
#!/bin/sh
verb=$1
shift
set -- {builder} "$verb" --engine {engine} "$@"
{through}
exec "$@"
"""
README_COMMANDS = ("tools/first-image --yes", "tools/test --yes")


def consoles() -> dict[str, list[Example]]:
    found: dict[str, list[Example]] = {}
    for example in examples():
        if example.language == "console" and example.document != "README.md" and not example.where:
            found.setdefault(example.document, []).append(example)
    return found


def test_the_readme_shows_the_two_commands_and_ci_runs_the_second() -> None:
    shown = [
        command
        for example in examples()
        if example.document == "README.md" and example.language == "console"
        for command in example.commands
    ]
    assert tuple(shown) == README_COMMANDS
    assert "tools/test --yes" in (ROOT / ".ci/run").read_text()


@pytest.fixture
def registry(request: pytest.FixtureRequest, kept_state: State, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variable that a page about a registry uses; nothing for any other page."""
    if request.node.callspec.params["document"] != SHARED:
        yield {}
        return
    with serving(build(request.config.cache, kept_state.bootstrap), tmp_path / "registry") as running:
        yield {"REGISTRY": running.address}


REPEATED = (
    *("an-agent-on-my-repository", "change-the-policy", "check-in-ci", "rotate-a-key", "scan-any-image"),
    *("sign-with-a-token", "update-versions", "work-offline"),
)
# Minutes each, of commands that other tests type too: the README's first command makes a first image, and
# keys, policies, checks, updates and sharing have tests. With --long they are typed as they stand there.
LONG = (FIRST_IMAGE, OFFLINE, TEAM, SHARED, GUARDED, LOST, *(f"docs/how-to/{name}.md" for name in REPEATED))


@pytest.mark.parametrize(
    "document",
    [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in sorted(consoles())],
)
def test_the_commands_of_a_page(
    spine: Spine, document: str, registry: dict[str, str], tmp_path: Path
) -> None:
    state = tmp_path / "state" / "agent-image-builder"
    state.parent.mkdir()
    copy_state(spine.state, state)
    if document in FRESH:
        (state / "marks.json").unlink()  # who makes a first policy has accepted none yet
    project = tmp_path / "project"
    project.mkdir()
    environment = reader_environment(spine, tmp_path, document) | registry
    if document in (OFFLINE, TEAM, LOST):
        for command in ("builder build", "builder verify --attest"):
            assert type_it(command, project, environment).returncode == 0
    with scripted_model(tmp_path) if document == FIRST_AGENT else contextlib.nullcontext():
        for example in consoles()[document]:
            for step in example.steps:
                where = f"{document}:{example.line}: {step.command}"
                done = type_it(step.command, project, environment)
                assert done.returncode == 0, f"{where}\n{done.stdout[-3000:]}"
                missing = step.missing(done.stdout)
                assert missing is None, f"{where}\nshows {missing!r}\n{done.stdout[-3000:]}"
                project = Path((tmp_path / "directory").read_text().removesuffix("\n"))


def type_it(command: str, directory: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """In a shell of its own, which says where it ended: a reader's next command starts there."""
    return subprocess.run(
        ["bash", "-euc", f"trap 'pwd >\"$READER_DIRECTORY\"' EXIT\n{command}"],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1500,
        check=False,
    )


@contextlib.contextmanager
def scripted_model(folder: Path) -> Iterator[None]:
    """The provider by its real name, in a network of its own: the reader's runs are started in there."""
    module = (sys.executable, "-m")
    private = ("unshare", "--net", "--mount", "--", *module, "tests.real.private_network")
    argv = [*private, *module, "tests.real.scripted_model", "--trusted", str(folder)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        try:
            assert serving.stdout.readline() == "ready\n"
            inside = f'nsenter --target={serving.pid} --net --mount --wdns="$PWD" --'
            (folder / "bin/inside").write_text(f'#!/bin/sh\nexec {inside} "$@"\n')
            (folder / "bin/inside").chmod(0o755)
            yield
        finally:
            serving.terminate()


def reader_environment(spine: Spine, tmp_path: Path, document: str) -> dict[str, str]:
    """A reader's shell: own places, and `builder` on the PATH, with the engine that this run is about.

    How-tos start where the tutorial ends: with a configuration, a project and a built image; one that builds
    anew, with keys of its own, has a small project.
    """
    commands = tmp_path / "bin"
    commands.mkdir()
    wrapper = commands / "builder"
    through = THROUGH.get(document, "")
    wrapper.write_text(WRAPPER.format(through=through, builder=BUILDER, engine=spine.engine))
    wrapper.chmod(0o755)
    config = tmp_path / "config"
    config.mkdir(mode=0o700)
    if document not in FRESH:
        subprocess.run(["cp", "-a", str(spine.config), str(config)], check=True)
        if document in SMALL:
            write_small_project(spine.project, tmp_path / "project")
        else:
            for name in ("builder.toml", "builder.lock"):
                shutil.copy(spine.project / name, tmp_path / "project")
    return {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(config),
        "READER_DIRECTORY": str(tmp_path / "directory"),
    }
