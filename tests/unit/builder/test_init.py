"""`builder init` writes files that are read back as they stand, and never overwrites one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.containers import EngineFacts, ImageIdKind
from backend.probe import HostProbe, ProbeLine, ProbeName, ProbeState
from builder.init import CONFIG_NAME, ROLES, InitRequest, choose_acceptances, choose_mode, init, missing_keys
from builder.settings.settings_file import Proxy, load_settings
from builder.state import open_state
from images.config import AgentName, parse_base, parse_config, parse_peer
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
        storage_root="/",
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
        assert key.public.fingerprint == entry.who
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


def test_a_passphrase_is_asked_for_only_where_a_key_is_to_be_made(tmp_path: Path) -> None:
    config_dir = tmp_path / "config"
    assert missing_keys(config_dir, ROLES)
    with pytest.raises(UsageError, match="without a passphrase"):
        init(request(tmp_path, protection=None))
    assert not (config_dir / "policy.toml").exists()
    init(request(tmp_path))
    assert not missing_keys(config_dir, ROLES)
    assert missing_keys(config_dir, (*ROLES, Role.REBUILDER))
    (config_dir / "settings.toml").unlink()
    assert init(request(tmp_path, protection=None)).written == (config_dir / "settings.toml",)


def test_a_rebuilder_is_made_on_demand_and_trusted(tmp_path: Path) -> None:
    init(request(tmp_path, roles=(*ROLES, Role.REBUILDER)))
    entry = load_policy(tmp_path / "config/policy.toml").trust[-1]
    assert entry.role is Role.REBUILDER
    key = load_private_key(tmp_path / "config/keys/rebuilder.key", None)
    assert key.public.fingerprint == entry.who


def test_the_entry_to_add_for_a_key_that_a_kept_policy_does_not_know(tmp_path: Path) -> None:
    assert init(request(tmp_path)).entries == ()
    done = init(request(tmp_path, roles=(*ROLES, Role.REBUILDER)))
    assert tmp_path / "config/policy.toml" in done.kept
    policy = tmp_path / "config/policy.toml"
    assert len(done.entries) == 1
    policy.write_text(policy.read_text() + done.entries[0])
    assert load_policy(policy).trust[-1].role is Role.REBUILDER
    assert init(request(tmp_path, roles=(*ROLES, Role.REBUILDER))).entries == ()


def test_the_entry_to_add_for_a_key_that_takes_the_place_of_another(tmp_path: Path) -> None:
    """The role is trusted, and this key of it is not."""
    init(request(tmp_path))
    policy, keys = tmp_path / "config/policy.toml", tmp_path / "config/keys"
    for end in ("key", "pub"):
        (keys / f"verifier.{end}").rename(keys / f"verifier-1.{end}")
    policy.write_text(policy.read_text().replace("keys/verifier.pub", "keys/verifier-1.pub"))
    (entry,) = init(request(tmp_path)).entries
    policy.write_text(policy.read_text() + entry)
    assert init(request(tmp_path)).entries == ()
    believed = [one.who for one in load_policy(policy).trust if one.role is Role.VERIFIER]
    assert believed == [
        load_private_key(keys / f"{name}.key", None).public.fingerprint for name in ("verifier-1", "verifier")
    ]


def test_what_runs_may_reach_is_asked_for_and_granted_by_the_same_word(tmp_path: Path) -> None:
    peers = (parse_peer("api.anthropic.com:443"), parse_peer("[2600::1]:8443"))
    done = init(request(tmp_path, allow=peers))
    config = parse_config((tmp_path / "project" / CONFIG_NAME).read_text(), where=CONFIG_NAME)
    assert set(config.run.allow) == set(peers)
    assert set(load_policy(tmp_path / "config/policy.toml").network) == set(peers)
    assert (done.unlisted, done.beyond) == ((), ())


def test_what_runs_may_reach_is_never_added_to_files_that_are_there(tmp_path: Path) -> None:
    init(request(tmp_path))
    peer = parse_peer("api.anthropic.com:443")
    done = init(request(tmp_path, allow=(peer,)))
    assert (done.unlisted, done.beyond) == ((peer,), (peer,))
    assert load_policy(tmp_path / "config/policy.toml").network == ()
    # Another project under the same policy: its own file is new.
    other = init(request(tmp_path, directory=tmp_path / "other", allow=(peer,)))
    assert (other.unlisted, other.beyond) == ((), (peer,))


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
    assert "what was seen (engine-rootless)" in why
    found = choose_acceptances(
        probe({ProbeName.MEMORY_LIMIT: ProbeState.ACCEPTABLE, ProbeName.PIDS_LIMIT: ProbeState.ACCEPTABLE})
    )
    assert [one.what for one in found] == [LaunchReason.KEYS_READABLE, LaunchReason.LIMITS_NOT_ENFORCED]
    assert found[1].why == "a container that asked for them had none: memory-limit, pids-limit"


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


def test_a_policy_beside_the_accepted_one_is_told_and_not_taken(tmp_path: Path) -> None:
    assert init(request(tmp_path)).unaccepted == ""
    marks = (tmp_path / "state/marks.json").read_bytes()
    assert "needs a higher one" in init(request(tmp_path, config_dir=tmp_path / "other")).unaccepted
    assert (tmp_path / "state/marks.json").read_bytes() == marks
    (tmp_path / "state/marks.json").write_bytes(b"{")
    assert "damaged" in init(request(tmp_path)).unaccepted
