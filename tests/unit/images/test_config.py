"""builder.toml: strict, exact, and each error says file, line, path and what was expected."""

from __future__ import annotations

import contextlib
import json
import tomllib
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.additions import McpPin, SkillPin
from images.config import (
    AgentName,
    AgentPin,
    check_version,
    parse_base,
    parse_config,
    parse_duration,
    parse_memory,
    parse_peer,
)
from images.config_model import BuilderToml, json_schema
from images.errors import BuilderError, ExitCode, UsageError
from images.lock import config_digest
from tests.fakes.locks import BASE_DIGEST, BUILDER_TOML

SCHEMA = Path(__file__).resolve().parents[3] / "docs/reference/schemas/builder.schema.json"


ARCHIVE = f'sha256 = "{"0" * 64}"'
SERVER = 'npm = "x", version = "1.0.0"'


def refuse(old: str, new: str, code: ExitCode = ExitCode.USAGE) -> BuilderError:
    assert old in BUILDER_TOML
    with pytest.raises(BuilderError) as refused:
        parse_config(BUILDER_TOML.replace(old, new, 1), where="x/builder.toml")
    assert refused.value.code is code
    return refused.value


def test_the_example_parses() -> None:
    config = parse_config(BUILDER_TOML, where="builder.toml")
    assert config.name == "team/agents"
    assert config.base.digest == BASE_DIGEST
    assert config.agents == (
        AgentPin(AgentName.CLAUDE_CODE, "2.1.328"),
        AgentPin(AgentName.PI, "0.73.1"),
    )
    assert config.run.limits.memory == 4 << 30
    assert config.run.limits.deadline == 7200


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("^2.1.328", "a range"),
        ("~2.1.328", "a range"),
        (">=2.1.328", "a range"),
        ("2.1.x", "a range"),
        ("2.1", "a range"),
        ("2", "a range"),
        ("*", "a range"),
        ("1.0.0 || 2.0.0", "a range"),
        ("1.0.0 - 2.0.0", "a range"),
        ("latest", "a tag"),
        ("next", "a tag"),
        ("https://example.test/x.tgz", "a URL or Git"),
        ("git+ssh://git@example.test/x.git", "a URL or Git"),
        ("github:user/repo", "a URL or Git"),
        ("file:../x", "a file"),
        ("npm:other@1.0.0", "a file, link or alias"),
        ("../x", "a file"),
        ("", "not a version"),
        (" 1.0.0", "not a version"),
        ("1.0.0\n", "not a version"),
        ("01.0.0", "not a version"),
        ("\uff11.0.0", "not a version"),
    ],
)
def test_only_exact_versions(text: str, kind: str) -> None:
    with pytest.raises(ValueError, match=kind):
        check_version(text)


@pytest.mark.parametrize("text", ["0.0.0", "2.1.328", "1.0.0-rc.1", "1.0.0+build.5"])
def test_exact_versions_pass(text: str) -> None:
    assert check_version(text) == text


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('"2.1.328"', '"latest"', 10, "agents.claude-code: 'latest' is a tag"),
        ('"2.1.328"', "2.1", 10, "agents.claude-code: expected text in quotes"),
        ("pi =", "cursor =", 11, "agents.cursor: unknown key; expected one of claude-code, opencode, pi"),
        ("platforms =", "platfroms =", 6, "image.platfroms: unknown key"),
        ("uid = 1000", "uid = 0", 7, "image.user.uid"),
        ("uid = 1000", "uid = 997", 7, "belongs to the watch process"),
        ('name = "agent"', 'name = "root"', 7, "is taken inside"),
        ("uid = 1000", "uid = true", 7, "image.user.uid: expected a whole number"),
        ("uid = 1000", "uid = 1000.0", 7, "image.user.uid: expected a whole number"),
        ("schema = 1", "schema = 2", 1, "schema"),
        ("schema = 1", 'schema = "1"', 1, "schema"),
        ("schema = 1", "schema = true", 1, "schema: expected a whole number"),
        ("schema = 1", "schema = 1.0", 1, "schema: expected a whole number"),
        ('["linux/amd64"]', '["linux/s390x"]', 6, "image.platforms[0]"),
        ('["linux/amd64"]', '["linux/amd64", "linux/amd64"]', 3, "one is named twice"),
        ('["linux/amd64"]', "[]", 6, "image.platforms"),
        ("allow = []", 'allow = ["*.example.test:443"]', 19, "run.allow[0]"),
        ("allow = []", 'allow = ["https://a.test"]', 19, "run.allow[0]"),
        ('memory = "4GiB"', 'memory = "4G"', 20, "run.limits.memory"),
        ('deadline = "2h"', 'deadline = "-2h"', 20, "run.limits.deadline"),
        ("cpus = 2", 'cpus = "2"', 20, "run.limits.cpus: expected a number"),
        ("[run]", '[toolchain]\ndebian = ["Git"]\n[run]', 18, "toolchain.debian[0]"),
        ("[run]", '[toolchain]\ndebian = ["git=1.0"]\n[run]', 18, "toolchain.debian[0]"),
        ("[run]", '[toolchain]\ndebian = ["-y"]\n[run]', 18, "toolchain.debian[0]"),
        ("[run]", '[toolchain]\ndebian = ["git", "git"]\n[run]', 17, "one is named twice"),
        ("[run]", '[toolchain]\nrpm = ["git"]\n[run]', 18, "toolchain.rpm"),
        ("[run]", '[mcp]\na = { version = "1.0.0" }\n[run]', 18, "one of npm = and pypi ="),
        (
            "[run]",
            '[mcp]\na = { npm = "x", pypi = "x", version = "1.0.0" }\n[run]',
            18,
            "one of npm = and pypi =",
        ),
        ("[run]", '[mcp]\na = { pypi = "Foo_x", version = "1.0" }\n[run]', 18, "such as foo-x"),
        (
            "[run]",
            '[mcp]\na = { pypi = "x", version = ">=1.0" }\n[run]',
            18,
            "mcp.a.version: '>=1.0' is a range",
        ),
        (
            "[run]",
            '[mcp]\na = { pypi = "x", version = "1.0.*" }\n[run]',
            18,
            "mcp.a.version: '1.0.*' is a range",
        ),
        ("[run]", '[mcp]\na = { pypi = "x", version = "1.0-rc1" }\n[run]', 18, "expected 1.0rc1"),
        ("[run]", '[toolchain]\npypi = { uv = "latest" }\n[run]', 18, "'latest' is a tag"),
        ("[run]", '[toolchain]\npypi = { uv = "https://x.test/uv.whl" }\n[run]', 18, "is a URL"),
        ("[run]", '[toolchain]\npypi = { u_v = "1.0" }\n[run]', 18, "such as u-v"),
        ("[run]", '[toolchain]\npypi = ["uv"]\n[run]', 18, "toolchain.pypi"),
        ("[run]", '[toolchain]\nconda = ["x"]\n[run]', 18, "toolchain.conda: unknown key"),
        ("[run]", '[archives]\na = { sha256 = "00" }\n[run]', 18, "archives.a.sha256"),
        ("[run]", f'[archives]\na = {{ {ARCHIVE}, url = "x" }}\n[run]', 18, "archives.a.url: unknown key"),
        ("[run]", f'[archives]\na = {{ {ARCHIVE}, bins = {{ x = "../x" }} }}\n[run]', 18, "a file in the"),
        ("[run]", f'[archives]\na = {{ {ARCHIVE}, bins = {{ x = "/x" }} }}\n[run]', 18, "a file in the"),
        ("[run]", f'[archives]\na = {{ {ARCHIVE}, bins = {{ git = "x" }} }}\n[run]', 18, "of every image"),
        ("[run]", f'[archives]\na = {{ {ARCHIVE}, bins = {{ "a/b" = "x" }} }}\n[run]', 18, "archives.a.bins"),
        (
            "[run]",
            '[mcp]\na = { npm = "x", version = "latest" }\n[run]',
            18,
            "mcp.a.version: 'latest' is a tag",
        ),
        ("[run]", '[mcp]\na = { npm = "x" }\n[run]', 18, "mcp.a.version: missing"),
        ("[run]", '[mcp]\na = { npm = "../x", version = "1.0.0" }\n[run]', 18, "mcp.a.npm"),
        (
            "[run]",
            '[mcp]\na = { npm = "x", version = "1.0.0", url = "" }\n[run]',
            18,
            "mcp.a.url: unknown key",
        ),
        ("[run]", f'[mcp]\na = {{ {SERVER}, env = {{ A = "b" }} }}\n[run]', 18, "expected names alone"),
        ("[run]", f'[mcp]\na = {{ {SERVER}, env = ["A=b"] }}\n[run]', 18, "mcp.a.env[0]"),
        ("[run]", f'[mcp]\na = {{ {SERVER}, env = ["A", "A"] }}\n[run]', 18, "one is named twice"),
        ("[run]", f'[mcp]\na = {{ {SERVER}, args = ["a\\nb"] }}\n[run]', 18, "args[0]: expected one line"),
        ("[run]", f"[mcp]\nA_b = {{ {SERVER} }}\n[run]", 18, "mcp.A_b"),
        ("[run]", '[skills]\na = "../a"\n[run]', 18, "skills.a: '../a': expected a directory below"),
        ("[run]", '[skills]\na = "/a"\n[run]', 18, "expected a directory below"),
        ("[run]", '[skills]\na = "."\n[run]', 18, "expected a directory below"),
        ("[run]", '[skills]\na = ""\n[run]', 18, "expected a directory below"),
        ('["@anthropic-ai/claude-code"]', '["file:x"]', 15, "node.install-scripts[0]"),
        ('["@anthropic-ai/claude-code"]', '["a", "a"]', 13, "one is named twice"),
        ("[node]", "[node]\n[node]", None, "not TOML"),
        ("team/agents", "Team/Agents", 4, "image.name"),
        ("@sha256:", "@sha512:", 5, "image.base: not a digest"),
        ('agent = "claude-code"', 'agent = "opencode"', None, "is not among [agents]"),
    ],
)
def test_errors_name_line_path_and_expectation(old: str, new: str, line: int | None, said: str) -> None:
    refused = refuse(old, new)
    assert said in refused.what
    if line is not None:
        assert refused.where == f"x/builder.toml, line {line}"
    assert refused.hint


ADDITIONS = """
[mcp]
files = { npm = "@example/server-files", version = "1.2.3", args = ["/workspace"], env = ["B", "A"] }

[skills]
review = "skills/review"
"""


def test_servers_and_skills() -> None:
    config = parse_config(BUILDER_TOML + ADDITIONS, where="builder.toml")
    assert config.mcp == (McpPin("files", "@example/server-files", "1.2.3", ("/workspace",), ("A", "B")),)
    assert config.skills == (SkillPin("review", "skills/review"),)
    bare = parse_config(BUILDER_TOML, where="builder.toml")
    assert config_digest(bare) != config_digest(config)
    assert (bare.mcp, bare.skills) == ((), ())


CANARY = "0123456789abcdefghij"


@pytest.mark.parametrize(
    "args",
    [
        [f"--token={CANARY}"],
        ["--api-key", CANARY],
        [f"GITHUB_TOKEN={CANARY}"],
        [f"--githubToken={CANARY}"],
        [f"https://me:{CANARY}@example.test/"],
        [f"--header=Authorization: Bearer {CANARY}"],
        ["sk-ant-api03-" + CANARY * 3],
        ["--password", "hunter2hunter2"],
    ],
)
def test_a_credential_among_arguments_is_refused_and_not_shown(args: list[str]) -> None:
    server = f"{SERVER}, args = {json.dumps(args)}"
    refused = refuse("[run]", f"[mcp]\na = {{ {server} }}\n[run]", ExitCode.CREDENTIAL)
    assert "mcp.a: args[0] holds a credential by rule " in refused.what
    assert 'env = ["GITHUB_TOKEN"]' in refused.what
    assert CANARY not in f"{refused} {refused.hint}"
    assert "hunter2" not in f"{refused} {refused.hint}"


@pytest.mark.parametrize(
    "args", [["/workspace"], ["--token-file", "/run/secrets/x"], ["--max-tokens=4096"], ["--token", "$TOKEN"]]
)
def test_other_arguments_pass(args: list[str]) -> None:
    text = BUILDER_TOML + f"[mcp]\na = {{ {SERVER}, args = {json.dumps(args)} }}\n"
    assert parse_config(text, where="b").mcp[0].args == tuple(args)


def test_a_missing_key_is_named() -> None:
    assert "node.version: missing" in refuse('version = "22.23.5"', "").what


def test_a_section_with_a_typing_error_is_named_before_the_one_that_is_missing() -> None:
    text = BUILDER_TOML.replace("[agents]", "[agent]")
    with pytest.raises(UsageError, match=r"agent: unknown key; expected one of agents, .*and 1 more"):
        parse_config(text, where="builder.toml")


def test_several_problems_are_counted() -> None:
    text = BUILDER_TOML.replace('"2.1.328"', '"latest"').replace('"0.73.1"', '"^1"')
    with pytest.raises(UsageError, match="and 1 more"):
        parse_config(text, where="builder.toml")


def test_no_agents_is_refused() -> None:
    text = BUILDER_TOML.replace('claude-code = "2.1.328"\npi = "0.73.1"\n', "")
    with pytest.raises(UsageError, match="at least one"):
        parse_config(text.replace('agent = "claude-code"', ""), where="builder.toml")


@pytest.mark.parametrize("text", ["debian", "debian:12", "localhost:5000/debian:12", "a.test/b/c"])
def test_a_tag_is_unpinned(text: str) -> None:
    base = parse_base(text)
    assert not base.pinned
    assert str(base) == text


@pytest.mark.parametrize(
    "text", ["", "debian:", "De bian", "debian@", "debian@sha256:00", "-x", "a//b", "a:b:c"]
)
def test_broken_bases_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_base(text)


def test_a_base_with_tag_and_digest_is_pinned() -> None:
    base = parse_base(f"a.test:5000/b:1@{BASE_DIGEST}")
    assert (base.name, base.tag, base.digest) == ("a.test:5000/b", "1", BASE_DIGEST)


@pytest.mark.parametrize(
    "text", ["a.test", "a.test:0", "a.test:65536", "A.test:1", "a_b:1", "a.test:1/x", ":1", "*:1"]
)
def test_a_peer_is_exact(text: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        parse_peer(text)


@pytest.mark.parametrize(
    "text",
    [
        "127.1:80",
        "2130706433:80",
        "0x7f000001:80",
        "0177.0.0.1:80",
        "1.2.3.4.5:80",
        "256.1.1.1:80",
        "a.test.0x:80",
        "a.test.7:80",
        "[::ffff:127.0.0.1]:80",
        "[::ffff:7f00:1]:80",
        "[fd00:0::1]:80",
        "[1.2.3.4]:80",
        "[fd00::g]:80",
        "a" * 254 + ":80",
    ],
)
def test_an_address_of_a_peer_has_one_spelling(text: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        parse_peer(text)


def test_peers_and_amounts() -> None:
    assert str(parse_peer("10.0.0.1:80")) == "10.0.0.1:80"
    assert str(parse_peer("a1.7a:80")) == "a1.7a:80"
    assert str(parse_peer("[fd00::1]:8080")) == "[fd00::1]:8080"
    assert parse_memory("512MiB") == 512 << 20
    assert parse_duration("90d") == 90 * 86400.0


@pytest.mark.parametrize(
    "edit",
    [
        lambda t: t.replace("allow = []", 'allow = ["a.test:443"]'),
        lambda t: t.replace("cpus = 2", "cpus = 1"),
        lambda t: t.replace('name = "team/agents"', 'name = "other"'),
        lambda t: t.replace("debian-minimal@", "mirror.test/debian@"),
        lambda t: "# a comment\n" + t,
        lambda t: t.replace(
            'claude-code = "2.1.328"\npi = "0.73.1"', 'pi = "0.73.1"\nclaude-code = "2.1.328"'
        ),
    ],
)
def test_what_cannot_change_resolution_keeps_the_digest(edit: object) -> None:
    assert callable(edit)
    changed = edit(BUILDER_TOML)
    assert changed != BUILDER_TOML
    one, two = (parse_config(text, where="b") for text in (BUILDER_TOML, changed))
    assert config_digest(one) == config_digest(two)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2.1.328", "2.1.329"),
        ('pi = "0.73.1"\n', ""),
        ("22.23.5", "22.23.6"),
        ('["@anthropic-ai/claude-code"]', "[]"),
        ('["linux/amd64"]', '["linux/amd64", "linux/arm64"]'),
        (str(BASE_DIGEST), "sha256:" + "0" * 64),
    ],
)
def test_what_can_change_resolution_changes_the_digest(old: str, new: str) -> None:
    changed = BUILDER_TOML.replace(old, new, 1)
    one, two = (parse_config(text, where="b") for text in (BUILDER_TOML, changed))
    assert config_digest(one) != config_digest(two)


def test_the_published_schema_is_the_models() -> None:
    assert SCHEMA.read_text() == json_schema()


def test_the_published_schema_takes_the_example_and_refuses_an_unknown_key() -> None:
    schema = BuilderToml.model_json_schema(by_alias=True)
    document = tomllib.loads(BUILDER_TOML)
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "extra": 1}, schema)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_any_text_is_a_config_or_a_clean_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_config(text, where="builder.toml")


LINES = BUILDER_TOML.splitlines(keepends=True)


@given(st.integers(0, len(LINES) - 1), st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_line_replaced_is_a_config_or_a_clean_error(n: int, line: str) -> None:
    with contextlib.suppress(UsageError):  # anything else fails the test
        parse_config("".join((*LINES[:n], line + "\n", *LINES[n + 1 :])), where="builder.toml")


@pytest.mark.parametrize(
    "text",
    [
        BUILDER_TOML.replace("schema = 1", "schema = " + "1" * 5000),
        *("x = " + "[" * depth + "]" * depth for depth in (90, 200, 300, 450, 900, 5000)),
        *(".".join("a" * depth) + " = 1\n" for depth in (90, 110, 5000)),
        "[" + ".".join("a" * 5000) + "]\nx = 1\n",
        *(".".join([part] * 90_000) + " = 1\n" for part in ("a", '"a"', " a ", "'é'")),
        "[[" + " . ".join(["a"] * 90_000) + "]]\nx = 1\n",
        "a" * 900_000,
        '"' * 900_000,
        ". " * 400_000,
        BUILDER_TOML + "\0",
        "x = 1979-05-27T07:32:00+23:59\n",
    ],
    ids=lambda text: f"{text[:14]!r}, {len(text)} characters",
)
def test_whatever_the_parser_trips_over_is_a_clean_error(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_config(text, where="x/builder.toml")
    assert "x/builder.toml" in refused.value.where
    assert refused.value.hint


@pytest.mark.parametrize("lines", [3000, 60000], ids=str)
def test_a_file_that_is_wrong_all_over_is_refused_in_one_look(lines: int) -> None:
    """A search of the file for each of its faults would take hours here, and so be noticed."""
    with pytest.raises(UsageError, match=rf"\(and {lines - 1} more\)"):
        parse_config("".join(f"k{n} = 1\n" for n in range(lines)) + BUILDER_TOML, where="x/builder.toml")
