"""Every path rule: a leak at its path is found in any home, and the inert file there is silent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.credential_places import PATH_RULES, PathRule
from provenance.scan.lookinside import look_inside
from provenance.scan.places import PathTable, glob_to_regex
from provenance.scan.report import ScanReport, Verdict
from tests.fakes.credentials import Entry

ScanFiles = Callable[..., ScanReport]

# rule, path, content that leaks, content that is inert. No value has a shape: only the path gives it away.
LEAKS: list[tuple[str, str, bytes, bytes]] = [
    ("path-claude-credentials", "home/agent/.claude/.credentials.json", b'{"claudeAiOauth":{}}', b""),
    ("path-claude-state", "root/.claude.json", b'{"primaryApiKey":"a-plain-value-1"}', b'{"numStartups":3}'),
    (
        "path-claude-settings",
        "root/.claude/settings.local.json",
        b'{"env":{"ANTHROPIC_AUTH_TOKEN":"plain-value-1"}}',
        b'{"env":{"ANTHROPIC_AUTH_TOKEN":"${TOKEN}","CLAUDE_CODE_MAX_OUTPUT_TOKENS":"32000"}}',
    ),
    ("path-claude-transcript", "root/.claude/projects/-workspace/1.jsonl", b'{"type":"user"}', b""),
    (
        "path-opencode-auth",
        "root/.local/share/opencode/auth.json",
        b'{"anthropic":{"type":"oauth","refresh":"a-plain-refresh","access":"","expires":1}}',
        b"{}",
    ),
    (
        "path-opencode-config",
        "workspace/opencode.json",
        b'{"provider":{"x":{"options":{"apiKey":"a-plain-value-2"}}}}',
        b'{"provider":{"x":{"options":{"apiKey":"{env:X_API_KEY}"}}}}',
    ),
    (
        "path-pi-auth",
        "root/.pi/agent/auth.json",
        b'{"anthropic":{"type":"api_key","key":"plain-value"}}',
        b"{}",
    ),
    (
        "path-pi-models",
        "root/.pi/agent/models.json",
        b'{"providers":{"x":{"apiKey":"a-plain-value-3"}}}',
        b'{"providers":{"x":{"apiKey":"$X_KEY"}}}',
    ),
    ("path-pi-transcript", "root/.pi/agent/sessions/a/b.jsonl", b"{}", b""),
    ("path-codex-auth", "root/.codex/auth.json", b'{"tokens":{}}', b""),
    ("path-gemini-auth", "root/.gemini/oauth_creds.json", b'{"x":1}', b""),
    (
        "path-mcp-config",
        "srv/project/.mcp.json",
        b'{"mcpServers":{"x":{"env":{"DB_PASSWORD":"swordfish-9"}}}}',
        b'{"mcpServers":{"x":{"command":"npx","env":{"DB_PASSWORD":"${DB_PASSWORD}","MODE":"production"}}}}',
    ),
    (
        "path-gh-hosts",
        "root/.config/gh/hosts.yml",
        b"github.com:\n    user: me\n    oauth_token: plain-value-4\n",
        b"github.com:\n    user: me\n    git_protocol: ssh\n",
    ),
    ("path-git-credentials", "root/.git-credentials", b"https://me:hunter2@example.com\n", b"\n"),
    (
        "path-netrc",
        "root/.netrc",
        b"machine example.com\n  login me\n  password hunter2\n",
        b"machine example.com login me\n",
    ),
    (
        "path-git-config",
        "app/.git/config",
        b'[http "https://example.com/"]\n\textraheader = AUTHORIZATION: basic eDp5enp5enp5\n',
        b'[remote "origin"]\n\turl = git@example.com:team/app.git\n',
    ),
    (
        "path-npmrc",
        "usr/etc/npmrc",
        b"//registry.example/:_authToken=plain-value-5\n",
        b"//registry.example/:_authToken=${NPM_TOKEN}\nfund=false\n",
    ),
    ("path-yarnrc", "app/.yarnrc.yml", b'npmAuthToken: "plain-value-6"\n', b"nodeLinker: node-modules\n"),
    ("path-npm-logs", "root/.npm/_logs/2026-debug-0.log", b"0 verbose cli\n", b""),
    (
        "path-lockfile",
        "app/package-lock.json",
        b'{"packages":{"a":{"resolved":"https://me:s3cr3tword@registry.example/a.tgz"}}}',
        b'{"packages":{"a":{"resolved":"https://registry.example/a.tgz"}}}',
    ),
    ("path-pypirc", "root/.pypirc", b"[pypi]\nusername = __token__\npassword = hunter22\n", b"[distutils]\n"),
    (
        "path-pip-config",
        "etc/pip.conf",
        b"[global]\nindex-url = https://me:hunter22@index.example/simple\n",
        b"[global]\nindex-url = https://index.example/simple\n",
    ),
    (
        "path-cargo-credentials",
        "root/.cargo/credentials.toml",
        b'[registry]\ntoken = "plain-7"\n',
        b"[registry]\n",
    ),
    ("path-gem-credentials", "root/.gem/credentials", b"---\n:rubygems_api_key: x\n", b""),
    (
        "path-composer-auth",
        "root/.composer/auth.json",
        b'{"http-basic":{"x":{"password":"hunter22"}}}',
        b"{}",
    ),
    (
        "path-maven-settings",
        "root/.m2/settings.xml",
        b"<server><username>me</username><password>hunter22</password></server>",
        b"<server><username>me</username><password>${env.MAVEN_PASSWORD}</password></server>",
    ),
    (
        "path-docker-auth",
        "kaniko/.docker/config.json",
        b'{"auths":{"registry.example":{"auth":"bWU6aHVudGVyMg=="}}}',
        b'{"auths":{"registry.example":{}},"credHelpers":{"registry.example":"ecr-login"}}',
    ),
    ("path-ssh-key", "root/.ssh/id_ed25519", b"not even a key\n", b""),
    ("path-ssh-host-key", "etc/ssh/ssh_host_ed25519_key", b"not even a key\n", b""),
    ("path-gpg-key", "root/.gnupg/private-keys-v1.d/AB.key", b"(private-key)", b""),
    ("path-age-key", "root/.config/sops/age/keys.txt", b"# created\n", b""),
    ("path-key-store", "opt/app/server.p12", b"\x30\x82\x01\x00" + b"x" * 100, b"no store"),
    ("path-aws", "root/.aws/credentials", b"[default]\naws_secret_access_key = x\n", b""),
    ("path-gcloud", "root/.config/gcloud/application_default_credentials.json", b'{"client_id":"x"}', b""),
    ("path-azure", "root/.azure/msal_token_cache.json", b"{}", b""),
    (
        "path-kube-config",
        "root/.kube/config",
        b"users:\n- name: me\n  user:\n    token: plain-value-8\n",
        b"clusters: []\n",
    ),
    ("path-kube-token", "run/secrets/kubernetes.io/serviceaccount/token", b"plain", b""),
    ("path-huggingface", "root/.cache/huggingface/token", b"plain-value", b""),
    (
        "path-agent-tokens",
        "srv/claude-state/.credentials.json",
        b'{"claudeAiOauth":{"accessToken":"a-plain-token-1"}}',
        b'{"claudeAiOauth":{"accessToken":""}}',
    ),
    (
        "path-claude-servers",
        "root/.claude.json",
        b'{"mcpServers":{"x":{"env":{"X_API_KEY":"plain-value-10"}}}}',
        b'{"mcpServers":{"x":{"env":{"X_API_KEY":"${X_API_KEY}"}}}}',
    ),
    ("path-client-token", "root/.vault-token", b"plain-value", b""),
    ("path-client-config", "root/.my.cnf", b"[client]\npassword = hunter22\n", b"[client]\nuser = me\n"),
    ("path-terraform", "root/.terraform.d/credentials.tfrc.json", b'{"token": "plain-value-9"}', b"{}"),
    ("path-run-secret", "run/secrets/npm", b"plain-value", b""),
    ("path-history", "root/.bash_history", b"ls\n", b""),
    ("path-command-history", "srv/psql_history", b"export DB_PASSWORD=swordfish-9\n", b"select 1;\n"),
    (
        "path-apt-auth",
        "etc/apt/auth.conf.d/example.conf",
        b"machine x login me password hunter22\n",
        b"# none\n",
    ),
    (
        "path-apt-sources",
        "etc/apt/sources.list.d/x.list",
        b"deb https://me:hunter22@apt.example stable main\n",
        b"deb https://apt.example stable main\n",
    ),
    (
        "path-dotenv",
        "app/.env",
        b"DB_PASSWORD=swordfish-9\n",
        b"DB_PASSWORD=${DB_PASSWORD}\nMODE=production\n",
    ),
    (
        "path-sbom",
        "app/bom.cdx.json",
        b'{"formulation":[{"externalReferences":[{"url":"https://ci:swordfish-9@git.example/a"}]}]}',
        b'{"formulation":[{"externalReferences":[{"url":"https://git.example/a"}]}]}',
    ),
]


def test_every_rule_has_a_case() -> None:
    assert {rule for rule, *_ in LEAKS} == {rule.id for rule in PATH_RULES}


@pytest.mark.parametrize(("rule", "path", "leak", "inert"), LEAKS, ids=[rule for rule, *_ in LEAKS])
def test_a_leak_is_found_at_its_path(
    scan_files: ScanFiles, rule: str, path: str, leak: bytes, inert: bytes
) -> None:
    report = scan_files(Entry(path, leak))
    assert rule in {finding.rule for finding in report.findings}
    assert report.verdict is Verdict.FOUND


@pytest.mark.parametrize(("rule", "path", "leak", "inert"), LEAKS, ids=[rule for rule, *_ in LEAKS])
def test_the_inert_file_at_the_same_path_is_silent(
    scan_files: ScanFiles, rule: str, path: str, leak: bytes, inert: bytes
) -> None:
    assert scan_files(Entry(path, inert)).verdict is Verdict.CLEAN


@pytest.mark.parametrize(
    "home",
    [
        "root",
        "home/agent",
        "home/someone/deep/er",
        "var/lib/service",
        "opt/agents/pi/node_modules/x",
        "./root",
        "",
    ],
)
def test_any_home_counts(scan_files: ScanFiles, home: str) -> None:
    report = scan_files(Entry(f"{home}/.git-credentials".lstrip("/"), b"https://me:hunter2@example.com\n"))
    assert "path-git-credentials" in {finding.rule for finding in report.findings}


@pytest.mark.parametrize(
    "path",
    [
        "root/.ssh/id_ed25519.pub",
        "app/.env.example",
        "app/.env.sample",
        "root/.ssh/known_hosts",
        "root/.netrc.d/a",
    ],
)
def test_paths_that_only_look_alike_are_silent(scan_files: ScanFiles, path: str) -> None:
    assert scan_files(Entry(path, b"DB_PASSWORD=swordfish-9\npassword hunter22\n")).verdict is Verdict.CLEAN


def test_a_broken_or_commented_json_is_still_looked_into(scan_files: ScanFiles) -> None:
    report = scan_files(Entry("w/opencode.jsonc", b'{ // mine\n "apiKey": "a-plain-value-2",\n'))
    assert "path-opencode-config" in {finding.rule for finding in report.findings}


def test_a_utf_16_file_is_still_looked_into(scan_files: ScanFiles) -> None:
    report = scan_files(Entry("w/.env", "DB_PASSWORD=swordfish-9\r\n".encode("utf-16")))
    assert "path-dotenv" in {finding.rule for finding in report.findings}


@given(st.sampled_from([rule for rule in PATH_RULES]), st.binary(max_size=400))
def test_looking_inside_never_fails(rule: PathRule, content: bytes) -> None:
    assert all(isinstance(value, bytes) for value in look_inside(rule, content))


@given(
    st.sampled_from(PATH_RULES),
    st.recursive(st.text(max_size=9), lambda inner: st.dictionaries(st.text(max_size=9), inner)),
)
def test_looking_inside_any_json_never_fails(rule: PathRule, value: object) -> None:
    list(look_inside(rule, json.dumps(value).encode()))


PATHS = st.lists(
    st.sampled_from([".claude", ".ssh", "id_a", ".env", "x", "run", "secrets", "a_history", "b.p12"]),
    min_size=1,
)


@given(PATHS.map("/".join))
def test_the_quick_table_agrees_with_the_plain_globs(path: str) -> None:

    plain = {
        rule.id
        for rule in PATH_RULES
        for glob in rule.globs
        if re.fullmatch(glob_to_regex(glob), path, re.DOTALL)
    }
    assert {rule.id for rule in PathTable().rules_for(path)} == plain
