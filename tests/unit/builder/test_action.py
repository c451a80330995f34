"""The repository's GitHub action: its form, its steps in bash, and inputs that would be commands."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema
import pytest

from images.errors import ExitCode
from tests.docs.action_requirements import PAGE, render
from tests.fakes.checkouts import Checkout, make_checkout
from tests.fakes.composite import Ran, load_action, run_action

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "action"
SCHEMA = json.loads((ROOT / "tests/schemas/github-action.schema.json").read_text())
# The program, without what needs a real base and the scanner's process: real tests have both.
STAND_IN = """\
#!{python}
import sys
sys.path.insert(0, {root!r})
from builder import verifying
verifying._compare_config = verifying._rescan = lambda *_: None
from builder.cli import main
main()
"""
Act = Callable[..., Ran]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """By the real clock, since its program is a process of its own."""
    return make_checkout(tmp_path, built=datetime.now(UTC) - timedelta(hours=1), until="2999-01-01")


@pytest.fixture
def act(checkout: Checkout, tmp_path: Path) -> Act:
    builder = tmp_path / "builder"
    builder.write_text(STAND_IN.format(python=sys.executable, root=str(ROOT)))
    builder.chmod(0o755)
    (tmp_path / "runner").mkdir()
    (checkout.state.root / "marks.json").unlink()

    def run(**given: str) -> Ran:
        words = {
            "policy": str(checkout.world.policy.path),
            "config": "agents/builder.toml",
            "digest": checkout.digest,
            "state": str(checkout.state.root),
            "builder": str(builder),
        }
        given = {name.replace("_", "-"): value for name, value in given.items()}
        return run_action(FOLDER, checkout.root, tmp_path / "runner", words | given)

    return run


def test_its_form_is_that_of_the_published_schema() -> None:
    action = load_action(FOLDER / "action.yml")
    jsonschema.Draft7Validator(SCHEMA).validate(action)
    broken = load_action(FOLDER / "action.yml")
    del broken["runs"]["steps"][0]["shell"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(SCHEMA).validate(broken)


def test_no_input_is_put_into_a_command_and_nobody_elses_action_is_used() -> None:
    action = load_action(FOLDER / "action.yml")
    used = set()
    for step in action["runs"]["steps"]:
        assert "uses" not in step
        assert "${{" not in step["run"]
        used |= set(re.findall(r"\$\{\{ inputs\.([a-z-]+) \}\}", " ".join(step["env"].values())))
    assert used == set(action["inputs"])


def test_what_it_installs_is_part_of_what_is_tested() -> None:
    assert PAGE.read_text() == render()
    assert "pyperscan==" in render()
    assert "ruff==" not in render()
    install = (FOLDER / "install").read_text()
    assert "--require-hashes --only-binary=:all:" in install
    assert "--no-deps --no-build-isolation --no-index" in install


def test_nothing_of_the_judged_checkout_runs_while_it_is_installed(tmp_path: Path) -> None:
    """The steps run in the checkout, where Python would take a module of such a name for its own."""
    workspace, temporary, owned = tmp_path / "checkout", tmp_path / "runner", tmp_path / "owned"
    for folder in (workspace / "pip", workspace / "ensurepip", temporary, tmp_path / "nowhere"):
        folder.mkdir(parents=True)
    for taken in ("venv.py", "hashlib.py", "pip/__init__.py", "ensurepip/__init__.py"):
        (workspace / taken).write_text(f"open({str(owned)!r}, 'a').write({taken!r})\n")
    given = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "nowhere")}  # so that it ends at pip
    ran = run_action(FOLDER, workspace, temporary, {"policy": "/policy.toml"}, **given)
    assert ran.code != ExitCode.DONE
    assert not owned.exists(), owned.read_text()
    assert "No matching distribution" in ran.output, ran.output


def test_a_verified_image(act: Act, checkout: Checkout, tmp_path: Path) -> None:
    ran = act()
    assert ran.code == ExitCode.DONE, ran.output
    assert ran.outputs["digest"] == checkout.digest
    assert "✅ verified" in ran.summary
    assert json.loads(Path(ran.outputs["sarif"]).read_text())["runs"][0]["results"] == []
    assert "::" not in ran.output


def test_an_image_that_is_not_verified(act: Act, checkout: Checkout) -> None:
    checkout.config.write_text(checkout.config.read_text().replace('pi = "0.73.1"', 'pi = "0.73.2"'))
    ran = act()
    assert ran.code == ExitCode.USAGE
    assert ran.outputs["digest"] == ""
    assert "\n::error file=agents/builder.toml,line=" in ran.output
    assert "❌ not verified" in ran.summary
    assert json.loads(Path(ran.outputs["sarif"]).read_text())["runs"][0]["results"]


def test_a_kept_state_refuses_an_older_policy(act: Act, checkout: Checkout) -> None:
    assert act().code == ExitCode.DONE
    policy = checkout.world.policy.path
    policy.write_text(policy.read_text().replace("serial = 3", "serial = 2"))
    ran = act()
    assert ran.code == ExitCode.VERIFY
    assert "not rolled back" in ran.output


def test_the_image_by_a_file(act: Act, checkout: Checkout) -> None:
    (checkout.root / "digest.txt").write_text(f"{checkout.digest}\n")
    assert act(digest="", digest_file="digest.txt").code == ExitCode.DONE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("digest", "$(touch owned)"),
        ("digest", '"; touch owned; "'),
        ("digest", "--attest"),
        ("digest", "sha256:0\nsarif=/owned"),
        ("config", "--attest"),
        ("policy", "x' || touch owned || '"),
        ("sarif", "x\ndigest=sha256:owned"),
        ("archive", "$(touch owned)"),
        ("archive", "--help"),
        ("digest", "-\n::notice::owned"),
        ("archive", "/nowhere\n::notice::owned"),
        ("archive", "-\n##[error]owned"),
        ("digest", "sha256:0\n::notice::owned"),
        ("config", "x\n::notice::owned"),
        ("policy", "x\n::notice::owned"),
        ("digest-file", "x\n::notice::owned"),
    ],
)
def test_an_input_is_a_word_and_never_a_command(act: Act, checkout: Checkout, name: str, value: str) -> None:
    ran = act(**{name: value})
    assert ran.code != ExitCode.DONE
    assert ran.outputs["digest"] == ""
    assert not (checkout.root / "owned").exists()
    assert "owned" not in ran.outputs["sarif"]
    assert not re.search(r"^\s*::(?!error )|##\[", ran.output, re.MULTILINE)
