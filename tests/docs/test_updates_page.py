"""The Renovate rule of docs/how-to/update-versions.md finds every pin of the example, and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from builder.resolve.newest import Standing
from images.config import AgentName, parse_config
from images.lock import NODE_PACKAGES
from images.oci import Platform
from tests.docs.documents import ROOT, examples
from tests.fakes.locks import BUILDER_TOML

PAGE = "docs/how-to/update-versions.md"
EXAMPLE = (ROOT / "examples" / "builder.toml").read_text()


def rule() -> dict[str, Any]:
    (found,) = [one for one in examples() if one.document == PAGE and one.language == "json"]
    document: dict[str, Any] = json.loads(found.text)
    return document


def found_in(text: str) -> dict[str, dict[str, str]]:
    """Package -> what its manager captures; Renovate writes groups as JavaScript does."""
    found: dict[str, dict[str, str]] = {}
    for manager in rule()["customManagers"]:
        assert manager["customType"] == "regex"
        for pattern in manager["matchStrings"]:
            for match in re.finditer(pattern.replace("(?<", "(?P<"), text):
                groups = match.groupdict()
                name = groups.get("depName") or manager["depNameTemplate"]
                assert name not in found, "two managers, or one twice, for one pin"
                found[name] = {**groups, "datasource": manager["datasourceTemplate"]}
    return found


@pytest.mark.parametrize("text", [EXAMPLE, BUILDER_TOML])
def test_every_pin_is_found_once(text: str) -> None:
    config = parse_config(text, where="builder.toml")
    expected = {agent.name.package: agent.version for agent in config.agents}
    expected[NODE_PACKAGES[Platform("linux", "amd64")]] = config.node.version
    assert {name: one["currentValue"] for name, one in found_in(text).items()} == expected
    assert {one["datasource"] for one in found_in(text).values()} == {"npm"}


def test_the_example_has_every_agent() -> None:
    assert {agent.name for agent in parse_config(EXAMPLE, where="x").agents} == set(AgentName)


def test_a_base_with_registry_tag_and_digest_is_found() -> None:
    digest = "sha256:" + "a" * 64
    for name in ("registry.example.test/team/base", "localhost:5000/base"):
        text = re.sub(r'base = "[^"]+"', f'base = "{name}:12.5@{digest}"', EXAMPLE)
        found = found_in(text)[name]
        assert (found["currentValue"], found["currentDigest"]) == ("12.5", digest)
        assert found["datasource"] == "docker"
        parse_config(text, where="builder.toml")


def test_the_managers_look_at_builder_toml_only() -> None:
    for manager in rule()["customManagers"]:
        (pattern,) = manager["managerFilePatterns"]
        expression = re.compile(pattern.removeprefix("/").removesuffix("/"))
        for path in ("builder.toml", "images/agents/builder.toml"):
            assert expression.search(path)
        for path in ("mybuilder.toml", "builder.toml.bak", "builder_toml"):
            assert not expression.search(path)


def test_the_page_names_every_standing() -> None:
    text = (ROOT / PAGE).read_text()
    assert [one.value for one in Standing if f"`{one.value}`" not in text] == []
