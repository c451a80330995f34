"""The full example is what the program takes, and its Skill is one."""

from __future__ import annotations

from pathlib import Path

from builder.locking import open_project

FULL = Path(__file__).resolve().parents[3] / "examples/full"


def test_the_full_example_has_tools_a_server_and_a_skill() -> None:
    project = open_project(FULL / "builder.toml")
    assert project.config.debian == ("git", "make", "python3", "ripgrep")
    assert [(pin.name, str(pin.index), pin.args) for pin in project.config.mcp] == [
        ("fetch", "pypi", ()),
        ("filesystem", "npm", ("/workspace",)),
    ]
    assert [(tool.name, tool.version) for tool in project.config.tools] == [("uv", "0.13.9")]
    (skill,) = project.skills()
    assert {file.path: file.executable for file in skill.lock.files} == {
        "SKILL.md": False,
        "scripts/changed-files.sh": True,
    }


def test_it_names_the_same_agents_and_base_as_the_other_example() -> None:
    full, small = (open_project(folder / "builder.toml").config for folder in (FULL, FULL.parent))
    assert (full.agents, full.node, full.base, full.user) == (
        small.agents,
        small.node,
        small.base,
        small.user,
    )
