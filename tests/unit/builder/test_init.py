"""`builder init` writes files that are read back as they stand, and never overwrites one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.containers import EngineFacts, ImageIdKind
from backend.probe import HostProbe, ProbeLine, ProbeName, ProbeState
from builder.init import CONFIG_NAME, ROLES, InitRequest, choose_acceptances, choose_mode, init
from builder.settings.settings_file import Proxy, load_settings
from builder.state import open_state
from images.config import AgentName, parse_base, parse_config
from images.credentials import Secret
from images.digests import Digest
from images.errors import LaunchReason, UsageError
from provenance.keys import Protection, load_private_key
from provenance.marks import read_marks
from provenance.policy import Mode, load_policy
from provenance.policy_model import Role
from tests.fakes.locks import BASE_DIGEST

NOW = datetime(2026, 11, 29, tzinfo=UTC)


def probe(states: dict[ProbeName, ProbeState], *, rootless: bool = True) -> HostProbe:
    facts = EngineFacts(
        product="podman",
        version="4.3.1",
        api_version="4.3.1",
        rootless=rootless,
        remote=False,
        storage_driver="overlay",
        cgroup_version="1",
        cgroup_driver="none",
        security_options=(),
        endpoint="unix:///run/x.sock",
        host_name="h",
        kernel="6",
        runtime="runc",
    )
    lines = tuple(
        ProbeLine(
            name=name,
            state=states.get(name, ProbeState.HELD),
            detail="what was seen",
            remedy="",
            reason=LaunchReason.LIMITS_NOT_ENFORCED,
        )
        for name in ProbeName
    )
    return HostProbe(
        boot_id="b",
        base=Digest.of(b"base"),
        facts=facts,
        id_kind=ImageIdKind.CONFIG,
        uid_map=(),
        lines=lines,
    )


def request(tmp_path: Path, **changes: object) -> InitRequest:
    values: dict[str, object] = {
        "directory": tmp_path / "project",
        "config_dir": tmp_path / "config",
        "state": open_state(tmp_path / "state"),
        "base": parse_base(f"debian-minimal@{BASE_DIGEST}"),
        "probe": None,
        "protection": Protection.UNENCRYPTED,
        "now": NOW,
        **changes,
    }
    return InitRequest(**values)  # type: ignore[arg-type]


def test_everything_is_written_and_reads_back(tmp_path: Path) -> None:
    done = init(request(tmp_path))
    config = parse_config((tmp_path / "project" / CONFIG_NAME).read_text(), where=CONFIG_NAME)
    assert config.base.digest == BASE_DIGEST
    assert [pin.name for pin in config.agents] == list(AgentName)
    policy = load_policy(tmp_path / "config/policy.toml", beside=tmp_path / "project")
    assert policy.bases == {BASE_DIGEST}
    assert policy.mode is Mode.REQUIRED
    assert tuple(entry.role for entry in policy.trust) == ROLES
    assert all(next(iter(entry.ids)).startswith("urn:uuid:") for entry in policy.trust)
    assert len({next(iter(entry.ids)) for entry in policy.trust}) == 3
    for entry in policy.trust:
        key = load_private_key(tmp_path / f"config/keys/{entry.role}.key", None)
        assert key.public.fingerprint == entry.key.fingerprint
    assert load_settings(tmp_path / "config/settings.toml").npmrc is None
    assert read_marks(tmp_path / "state/marks.json").policy == policy.digest
    assert len(done.written) == 3 + 6 + 1
    assert done.kept == ()
    assert (tmp_path / "config").stat().st_mode & 0o777 == 0o700


def test_the_second_time_nothing_changes(tmp_path: Path) -> None:
    init(request(tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = init(request(tmp_path, probe=probe({}), image_name="other"))
    assert done.written == ()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_rebuilder_is_made_on_demand_and_trusted(tmp_path: Path) -> None:
    init(request(tmp_path, roles=(*ROLES, Role.REBUILDER)))
    entry = load_policy(tmp_path / "config/policy.toml").trust[-1]
    assert entry.role is Role.REBUILDER
    key = load_private_key(tmp_path / "config/keys/rebuilder.key", None)
    assert key.public.fingerprint == entry.key.fingerprint


def test_the_entry_to_add_for_a_key_that_a_kept_policy_does_not_know(tmp_path: Path) -> None:
    assert init(request(tmp_path)).entries == ()
    done = init(request(tmp_path, roles=(*ROLES, Role.REBUILDER)))
    assert tmp_path / "config/policy.toml" in done.kept
    policy = tmp_path / "config/policy.toml"
    assert len(done.entries) == 1
    policy.write_text(policy.read_text() + done.entries[0])
    assert load_policy(policy).trust[-1].role is Role.REBUILDER
    assert init(request(tmp_path, roles=(*ROLES, Role.REBUILDER))).entries == ()


def test_an_operators_own_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    mine = tmp_path / "project" / CONFIG_NAME
    mine.write_text("# mine\n")
    assert mine in init(request(tmp_path)).kept
    assert mine.read_text() == "# mine\n"


@pytest.mark.parametrize("where", ["project", "project/config", "project/a/b"])
def test_a_policy_under_the_folder_of_builder_toml_is_refused(tmp_path: Path, where: str) -> None:
    with pytest.raises(UsageError, match="cannot approve itself"):
        init(request(tmp_path, config_dir=tmp_path / where))
    assert not (tmp_path / "project" / CONFIG_NAME).exists()


def test_encrypted_keys(tmp_path: Path) -> None:
    init(request(tmp_path, protection=Secret(b"dummy passphrase")))
    assert load_private_key(tmp_path / "config/keys/builder.key", Secret(b"dummy passphrase")).encrypted


def test_mode_and_acceptances_follow_the_probe(tmp_path: Path) -> None:
    assert choose_mode(probe({}))[0] is Mode.REQUIRED
    mode, why = choose_mode(probe({ProbeName.ROOTLESS: ProbeState.NOT_HELD}))
    assert mode is Mode.DEVELOPMENT
    assert "engine-rootless: what was seen" in why
    found = choose_acceptances(
        probe({ProbeName.MEMORY_LIMIT: ProbeState.ACCEPTABLE, ProbeName.PIDS_LIMIT: ProbeState.ACCEPTABLE})
    )
    assert [one.what for one in found] == [LaunchReason.KEYS_READABLE, LaunchReason.LIMITS_NOT_ENFORCED]
    assert "memory-limit: what was seen; pids-limit" in found[1].why


@pytest.mark.parametrize("rootless", [True, False])
def test_a_probed_host_gets_a_policy_that_parses(tmp_path: Path, rootless: bool) -> None:
    states = {ProbeName.MEMORY_LIMIT: ProbeState.ACCEPTABLE}
    if not rootless:
        states[ProbeName.ROOTLESS] = ProbeState.NOT_HELD
    init(request(tmp_path, probe=probe(states, rootless=rootless), npmrc=Path('/home/a "b"\\/.npmrc')))
    policy = load_policy(tmp_path / "config/policy.toml")
    assert policy.mode is (Mode.REQUIRED if rootless else Mode.DEVELOPMENT)
    assert policy.accepts(LaunchReason.LIMITS_NOT_ENFORCED) is not None
    settings = load_settings(tmp_path / "config/settings.toml")
    assert settings.engine == "podman"
    assert settings.npmrc == Path('/home/a "b"\\/.npmrc')


def test_an_unpinned_base_is_written_as_it_is(tmp_path: Path) -> None:
    init(request(tmp_path, base=parse_base("debian:12")))
    assert load_policy(tmp_path / "config/policy.toml").bases == frozenset()


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, None),
        (
            {"HTTPS_PROXY": "http://p.test:3128", "http_proxy": "http://q.test:1/", "NO_PROXY": "a, .b"},
            Proxy(https="http://p.test:3128", http="http://q.test:1/", no_proxy=("a", ".b")),
        ),
        ({"NO_PROXY": "*"}, None),
        ({"HTTPS_PROXY": "http://me:dummy-word@p.test:3128"}, None),
        ({"HTTPS_PROXY": "socks5://p.test"}, None),
        ({"HTTPS_PROXY": 'http://p.test:1"\nbase = "dummy-word'}, None),
    ],
)
def test_a_proxy_of_the_environment_is_written_down_if_it_holds_no_login(
    tmp_path: Path, environment: dict[str, str], proxy: Proxy | None
) -> None:
    init(request(tmp_path, environment=environment))
    path = tmp_path / "config/settings.toml"
    assert load_settings(path).proxy == proxy
    assert "dummy-word" not in path.read_text()
    asks_for_a_file = '# proxy_file = "/FILE"' in path.read_text()
    assert asks_for_a_file == (proxy is None and "HTTPS_PROXY" in environment)
