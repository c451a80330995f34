"""policy.toml: strict, closed, from a guarded place; a wish that is not enforced is an error."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images.digests import Digest
from images.errors import BuilderError, KeyUnusable, LaunchReason, UsageError
from provenance.policy import Enable, Mode, find_policy, load_policy, parse_policy
from provenance.policy_model import Role
from provenance.predicates import PROVENANCE_TYPE, SCAN_TYPE
from tests.attacks import Position, attack
from tests.fakes.evidence import key, pkcs8
from tests.fakes.policies import BUILDER_ID, HEAD, TRUST, policy_for, rebuilder_entry, write_policy

LOCK = Digest.of(b"lock")


def test_a_whole_policy_is_read(tmp_path: Path) -> None:
    more = f"""accept = [{{ what = "limits-not-enforced", why = "cgroup v1 host, one user" }}]
max_age = "90d"
min_rebuilds = 0
min_ruleset = 2
refuse_tofu = true
require_audit = true
network = []
enable = {{ mcp = [], skills = [] }}
revoked = {{ digests = ["{LOCK}"], keys = ["{LOCK}"], builder_ids = ["urn:x:y"] }}
"""
    policy = policy_for(tmp_path, base=LOCK, expect={"team/agents": LOCK}, more=more)
    assert policy.digest == Digest.of((tmp_path / "policy.toml").read_bytes())
    assert policy.serial == 3
    assert policy.valid_until == datetime(2027, 2, 28, tzinfo=UTC)
    assert policy.mode is Mode.REQUIRED
    accepted = policy.accepts(LaunchReason.LIMITS_NOT_ENFORCED)
    assert accepted is not None
    assert accepted.why == "cgroup v1 host, one user"
    assert policy.accepts(LaunchReason.KEYS_READABLE) is None
    assert policy.max_age == timedelta(days=90)
    assert (policy.min_ruleset, policy.origins.asks, policy.require_audit) == (2, True, True)
    assert policy.bases == {LOCK} == policy.revoked.digests == policy.revoked.keys
    assert policy.expected_lock("team/agents") == LOCK
    assert policy.expected_lock("team") is None
    builder, verifier, launcher = policy.trust
    assert (builder.role, verifier.role, launcher.role) == (Role.BUILDER, Role.VERIFIER, Role.LAUNCHER)
    assert builder.signer == key("builder").public
    assert builder.ids == {BUILDER_ID}
    assert {PROVENANCE_TYPE, SCAN_TYPE} < builder.predicate_types
    assert builder.not_after == datetime(2027, 11, 29, tzinfo=UTC)


BUILDER_ENTRY = TRUST.split("\n\n")[0]
WRONG = [
    ("serial = 3", "serial = 0", "serial"),
    ("serial = 3", "serial = 3.0", "serial"),
    ("serial = 3", 'serial = "3"', "serial"),
    ("serial = 3\n", "", "serial"),
    ("schema = 1", "schema = 2", "schema"),
    ("schema = 1", "schema = true", "schema: expected a whole number"),
    ("serial = 3", "serial = 9007199254740992", "serial"),
    ("2027-02-28T00:00:00Z", "2027-02-28", "valid_until"),
    ("2027-02-28T00:00:00Z", "2027-02-28T00:00:00", "valid_until"),
    ("2027-02-28T00:00:00Z", "0001-01-01T00:00:00+23:59", "valid_until"),
    ("2027-02-28T00:00:00Z", "9999-12-31T23:59:59-23:59", "valid_until"),
    ("2027-11-29T00:00:00Z", "9999-12-31T23:59:59-23:59", "not_after"),
    ("valid_until = 2027-02-28T00:00:00Z\n", "", "valid_until"),
    ('mode = "required"', 'mode = "off"', "mode"),
    ('mode = "required"', "mode = true", "mode"),
    (HEAD, HEAD + "unknown = 1\n", "unknown: unknown key"),
    (HEAD, HEAD + 'max_age = "ninety"\n', "max_age"),
    (HEAD, HEAD + "max_age = 90\n", "max_age"),
    (HEAD, HEAD + "min_rebuilds = -1\n", "min_rebuilds"),
    (HEAD, HEAD + "min_rebuilds = true\n", "min_rebuilds"),
    (HEAD, HEAD + "min_rebuilds = 1\n", "min_rebuilds: 1 are asked for, but 0 rebuilders are trusted"),
    (TRUST, TRUST + rebuilder_entry("one", id=BUILDER_ID), "is a builder's id"),
    (TRUST, TRUST + rebuilder_entry("builder"), "trusted as builder and as rebuilder"),
    (TRUST, TRUST + 2 * rebuilder_entry("one"), "trusted twice"),
    (TRUST, TRUST + rebuilder_entry("one") + f'predicate_types = ["{SCAN_TYPE}"]\n', "predicate_types"),
    (HEAD, HEAD + 'network = ["api.anthropic.com"]\n', r"network\[0\]: .*expected host:port"),
    (HEAD, HEAD + 'network = ["*:443"]\n', r"network\[0\]: .*expected host:port"),
    (HEAD, HEAD + 'network = ["10.0.0.0/8:443"]\n', r"network\[0\]: .*expected host:port"),
    (HEAD, HEAD + 'network = "api.anthropic.com:443"\n', "network"),
    (HEAD, HEAD + f"network = {[f'a{n}.test:1' for n in range(201)]}\n", "network"),
    (HEAD, HEAD + "enable = { mcp = true }\n", "enable.mcp"),
    (HEAD, HEAD + 'enable = { mcp = "fetch" }\n', "enable.mcp"),
    (HEAD, HEAD + 'enable = { mcp = ["*"] }\n', "enable.mcp"),
    (HEAD, HEAD + 'enable = { mcp = ["../fetch"] }\n', "enable.mcp"),
    (HEAD, HEAD + 'enable = { mcp = ["a", "a"] }\n', "named twice"),
    (HEAD, HEAD + 'enable = { skills = ["a", "a"] }\n', "named twice"),
    (HEAD, HEAD + f"enable = {{ skills = {[f's{n}' for n in range(51)]} }}\n", "enable.skills"),
    (HEAD, HEAD + "enable = { agents = [] }\n", "enable.agents: unknown key"),
    (HEAD, HEAD + 'enable = { mcp = ["a"], secrets = { b = { T = "file:t" } } }\n', "b is not in mcp"),
    (HEAD, HEAD + 'enable = { mcp = ["a"], secrets = { a = {} } }\n', "enable.secrets.a"),
    (HEAD, HEAD + 'enable = { mcp = ["a"], secrets = { a = "file:t" } }\n', "enable.secrets.a"),
    (HEAD, HEAD + 'enable = { mcp = ["a"], secrets = { a = { T = "the-value" } } }\n', "enable.secrets.a.T"),
    (HEAD, HEAD + 'enable = { mcp = ["a"], secrets = { a = { T = "file:" } } }\n', "enable.secrets.a.T"),
    (HEAD, HEAD + 'enable = { mcp = ["a"], secrets = { a = { "T-T" = "file:t" } } }\n', "enable.secrets.a"),
    (HEAD, HEAD + 'engine_store = "hash"\n', "engine_store"),
    (HEAD, HEAD + 'nested = "ignored"\n', "nested"),
    (HEAD, HEAD + 'opaque = { "sha256:1" = "because" }\n', "opaque"),
    (HEAD, HEAD + f'opaque = {{ "{LOCK}" = "" }}\n', "opaque"),
    (HEAD, HEAD + "min_ruleset = 0\n", "min_ruleset"),
    (HEAD, HEAD + 'bases = ["debian:latest"]\n', "bases"),
    (HEAD, HEAD + f'bases = ["{LOCK.upper()}"]\n', "bases"),
    (HEAD, HEAD + f'bases = ["{LOCK}\\n"]\n', "bases"),
    (HEAD, HEAD + 'accept = [{ what = "everything", why = "because" }]\n', "cannot be accepted"),
    (HEAD, HEAD + 'accept = [{ what = "not-verified", why = "because" }]\n', "cannot be accepted"),
    (HEAD, HEAD + 'accept = [{ what = "limits-not-enforced" }]\n', "why"),
    (HEAD, HEAD + 'accept = [{ what = "limits-not-enforced", why = "" }]\n', "why"),
    (HEAD, HEAD + 'accept = ["limits-not-enforced"]\n', "accept"),
    (HEAD, HEAD + "revoked = { images = [] }\n", "revoked.images"),
    (HEAD, HEAD + 'expect = { "a" = "x" }\n', "expect"),
    (HEAD, HEAD + "revoked = []\n", "revoked"),
    (TRUST, "", "trust"),
    (TRUST, "trust = []\n", "trust"),
    ('role = "builder"', 'role = "rebuilder"', "cannot have builder_ids"),
    ('role = "builder"', 'role = "admin"', "role"),
    ('kind = "key"', 'kind = "keyless"', "cannot have key"),
    ('kind = "key"\n', "", "kind"),
    ('kind = "key"', 'kind = "key"\nidentity = ".*"', "identity"),
    (f'builder_ids = ["{BUILDER_ID}"]', "", "needs builder_ids"),
    (f'builder_ids = ["{BUILDER_ID}"]', "builder_ids = []", "needs builder_ids"),
    (f'builder_ids = ["{BUILDER_ID}"]', 'builder_ids = [""]', "builder_ids"),
    (f'builder_ids = ["{BUILDER_ID}"]', f'builder_ids = "{BUILDER_ID}"', "builder_ids"),
    ("builder_ids =", 'verifier_ids = ["urn:x:y"]\nbuilder_ids =', "cannot have verifier_ids"),
    ("builder_ids =", 'predicate_types = ["x"]\nbuilder_ids =', "predicate_types"),
    ("builder_ids =", "predicate_types = []\nbuilder_ids =", "predicate_types"),
    ('key = "keys/builder.pub"', "", "key"),
    (BUILDER_ENTRY, BUILDER_ENTRY.replace("builder", "launcher").replace(BUILDER_ID, "urn:x:y"), "twice"),
    ("keys/verifier.pub", "keys/builder.pub", "trusted as builder and as verifier"),
    ("schema = 1", "schema = 1\nschema = 1", "not TOML"),
]


@pytest.mark.parametrize(("old", "new", "why"), WRONG)
def test_a_wrong_policy_names_file_and_place(tmp_path: Path, old: str, new: str, why: str) -> None:
    text = HEAD + TRUST
    assert old in text
    path = write_policy(tmp_path, text.replace(old, new, 1))
    with pytest.raises(UsageError, match=why) as caught:
        load_policy(path)
    assert str(path) in caught.value.where


def test_what_is_turned_on_is_read_and_no_value_is(tmp_path: Path) -> None:
    more = """
[enable]
mcp = ["issues", "filesystem"]
skills = ["code-review"]

[enable.secrets.issues]
ISSUES_TOKEN = "file:secrets/issues"
ISSUES_URL = "file:/etc/issues-url"
OTHER = "descriptor"
"""
    enable = load_policy(write_policy(tmp_path, HEAD + more + TRUST)).enable
    assert (enable.mcp, enable.skills) == (("filesystem", "issues"), ("code-review",))
    assert [(one.server, one.variable, one.path) for one in enable.secrets] == [
        ("issues", "ISSUES_TOKEN", tmp_path / "secrets/issues"),
        ("issues", "ISSUES_URL", Path("/etc/issues-url")),
        ("issues", "OTHER", None),
    ]
    assert load_policy(write_policy(tmp_path, HEAD + TRUST)).enable == Enable()


def test_a_secret_typed_in_the_place_of_its_file_is_not_repeated(tmp_path: Path) -> None:
    value = "dummy-" + "0123456789" * 3
    line = f'enable = {{ mcp = ["a"], secrets = {{ a = {{ T = "{value}" }} }} }}\n'
    with pytest.raises(UsageError) as caught:
        load_policy(write_policy(tmp_path, HEAD + line + TRUST))
    assert value not in f"{caught.value} {caught.value.hint} {caught.value.where}"


def test_an_error_has_its_line(tmp_path: Path) -> None:
    path = write_policy(tmp_path, (HEAD + TRUST).replace('mode = "required"', "mode = 1"))
    with pytest.raises(UsageError) as caught:
        load_policy(path)
    assert caught.value.where == f"{path}, line 4"


@attack(by=Position.LOCAL_USER)
@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
@pytest.mark.parametrize("target", ["policy.toml", "keys/builder.pub", ".", "keys"])
def test_what_others_can_write_is_refused(tmp_path: Path, mode: int, target: str) -> None:
    path = write_policy(tmp_path / "config", HEAD + TRUST)
    wrong = tmp_path / "config" / target
    wrong.chmod(mode | (0o111 if wrong.is_dir() else 0))
    with pytest.raises(UsageError, match="others can write it"):
        load_policy(path)


def test_a_sticky_folder_is_no_danger(tmp_path: Path) -> None:
    path = write_policy(tmp_path / "config", HEAD + TRUST)
    (tmp_path / "config").chmod(0o1777)
    assert load_policy(path).serial == 3


@attack(by=Position.LOCAL_USER)
def test_a_policy_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_policy(tmp_path / "config", HEAD + TRUST)
    os.chown(path, 4321, -1) if os.getuid() == 0 else monkeypatch.setattr(os, "geteuid", lambda: 4321)
    with pytest.raises(UsageError, match="neither root nor us"):
        load_policy(path)


@attack(by=Position.CONFIG_AUTHOR)
def test_a_policy_at_or_under_builder_toml_is_refused(tmp_path: Path) -> None:
    project = tmp_path / "project"
    inside = write_policy(project / "config", HEAD + TRUST)
    outside = write_policy(tmp_path / "config", HEAD + TRUST)
    link = project / "policy.toml"
    link.symlink_to(outside)
    for path in (inside, link, project / "config" / ".." / "config" / "policy.toml"):
        with pytest.raises(UsageError, match="cannot approve itself"):
            load_policy(path, beside=project)
    (tmp_path / "alias").symlink_to(project)
    with pytest.raises(UsageError, match="cannot approve itself"):
        load_policy(tmp_path / "alias" / "config" / "policy.toml", beside=project)
    assert load_policy(outside, beside=project).serial == 3


@attack(by=Position.LAYOUT_WRITER)
def test_a_policy_in_a_layout_is_refused(tmp_path: Path) -> None:
    path = write_policy(tmp_path / "layout" / "blobs", HEAD + TRUST)
    (tmp_path / "layout" / "oci-layout").write_text("{}")
    with pytest.raises(UsageError, match="OCI layout"):
        load_policy(path)


def test_missing_files_and_wrong_keys(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_policy(tmp_path / "absent.toml")
    with pytest.raises(UsageError, match="regular"):
        load_policy(tmp_path)
    path = write_policy(tmp_path / "config", HEAD + TRUST)
    public = tmp_path / "config" / "keys" / "builder.pub"
    public.write_bytes(pkcs8("builder"))
    with pytest.raises(KeyUnusable) as caught:
        load_policy(path)
    assert "keys/builder.pub" in caught.value.where
    public.unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        load_policy(path)


def test_the_first_policy_found_is_the_policy(tmp_path: Path) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    two.write_text("")
    assert find_policy([one, two]) == two
    one.symlink_to(tmp_path / "dangling")
    assert find_policy([one, two]) == one
    with pytest.raises(UsageError, match="nothing is trusted") as caught:
        find_policy([tmp_path / "x"])
    assert caught.value.hint == "builder init"


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_link_to_nothing_is_not_passed_over_for_another_policy(tmp_path: Path, depth: int) -> None:
    mine, theirs = tmp_path / "a/b/policy.toml", tmp_path / "policy.toml"
    theirs.touch()
    link = (mine, *mine.parents)[depth]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path / "nowhere")
    assert find_policy([mine, theirs]) == mine
    with pytest.raises(UsageError, match="cannot be read"):
        load_policy(mine)
    link.unlink()
    assert find_policy([mine, theirs]) == theirs


LINES = st.sampled_from(
    [*(HEAD + TRUST).splitlines(), "[trust]", "[expect]", "x = [", "trust.a.b = 1", '"\\u0000" = 1']
)


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.lists(LINES, max_size=12).map(lambda x: "\n".join(x).encode())))
def test_any_bytes_are_a_policy_or_fail_as_expected(raw: bytes) -> None:
    def read_key(name: str) -> bytes:
        return key(name.removeprefix("keys/").removesuffix(".pub")).public.pem

    with contextlib.suppress(BuilderError):
        parse_policy(raw, path=Path("policy.toml"), read_key=read_key)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path)])
def test_what_is_no_file_is_refused_with_a_way_on(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "policy.toml")
    with pytest.raises(UsageError) as refused:
        load_policy(tmp_path / "policy.toml", beside=tmp_path / "project")
    assert refused.value.where == str(tmp_path / "policy.toml")
    assert refused.value.hint
