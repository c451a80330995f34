"""The store of logins: private, whole or not at all, encrypted where a keyring is, strict when it is read."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
from pathlib import Path

import pytest

from backend.logins.leasing import forget_login, is_leased, keep_login, lease_login, require_free
from backend.logins.store import LoginName
from backend.projection.credentials import Credential, read_credential
from backend.projection.routes import Route
from images.config import AgentName
from images.errors import HostError, KeyUnusable, LaunchRefused, StateError, UsageError
from tests.fakes.admitted import NOW
from tests.fakes.kept_logins import CLAUDE, PI, FakeKeyring, store_at
from tests.fakes.projected import claude, credential, dummy, named

LOGIN = (credential(Route.CLAUDE_LOGIN),)
SECRETS = (dummy("token").encode(), dummy("refresh").encode())


def everything(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


def test_what_is_written_is_read_again_and_is_private(tmp_path: Path) -> None:
    store = store_at(tmp_path / "logins")
    assert store.names() == ()
    store.write(CLAUDE, LOGIN, NOW, encrypted=False)
    store.write(PI, (credential(Route.PI_API_KEY), credential(Route.PI_LOGIN)), NOW, encrypted=False)
    assert store.names() == (CLAUDE, PI)
    assert store.read(CLAUDE, NOW) == LOGIN
    assert {str(one.name) for one in store.read(PI, NOW)} == {"pi.login", "pi.api-key.anthropic"}
    known = store.look(CLAUDE)
    assert known is not None
    assert (known.rotates, known.encrypted, known.credentials) == (True, False, ("claude-code.login",))
    assert store.path(CLAUDE).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "logins").stat().st_mode & 0o777 == 0o700


def test_with_a_keyring_no_letter_of_it_is_in_the_file(tmp_path: Path) -> None:
    keyring = FakeKeyring()
    store = store_at(tmp_path / "logins", keyring)
    store.write(CLAUDE, LOGIN, NOW, encrypted=store.encrypts)
    assert not any(secret in everything(tmp_path) for secret in SECRETS)
    assert store.read(CLAUDE, NOW) == LOGIN
    keyring.locked = True
    with pytest.raises(KeyUnusable):
        store.read(CLAUDE, NOW)
    with pytest.raises(KeyUnusable):  # and is not written in the clear instead
        store.write(CLAUDE, LOGIN, NOW, encrypted=True)
    known = store.look(CLAUDE)
    assert known is not None
    assert known.encrypted


def test_without_its_keyring_an_encrypted_login_is_not_replaced_in_the_clear(tmp_path: Path) -> None:
    store_at(tmp_path / "logins", FakeKeyring()).write(CLAUDE, LOGIN, NOW, encrypted=True)
    alone = store_at(tmp_path / "logins")
    with pytest.raises(KeyUnusable):
        alone.read(CLAUDE, NOW)
    with pytest.raises(KeyUnusable):
        alone.write(CLAUDE, LOGIN, NOW, encrypted=True)
    with pytest.raises(KeyUnusable), lease_login(alone, CLAUDE, lambda: NOW):
        pass


def test_a_file_does_not_open_under_another_name(tmp_path: Path) -> None:
    store = store_at(tmp_path / "logins", FakeKeyring())
    store.write(CLAUDE, LOGIN, NOW, encrypted=True)
    other = LoginName(AgentName.CLAUDE_CODE, "other")
    store.path(other).write_bytes(store.path(CLAUDE).read_bytes())
    store.path(other).chmod(0o600)
    with pytest.raises(StateError, match="does not open"):
        store.read(other, NOW)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_what_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    store = store_at(tmp_path / "logins")
    store.write(CLAUDE, LOGIN, NOW, encrypted=False)
    store.path(CLAUDE).chmod(mode)
    with pytest.raises(StateError, match="others may look in"):
        store.read(CLAUDE, NOW)


def test_a_directory_that_is_open_or_a_link_is_refused(tmp_path: Path) -> None:
    store = store_at(tmp_path / "logins")
    store.write(CLAUDE, LOGIN, NOW, encrypted=False)
    (tmp_path / "logins").chmod(0o755)
    for use in (store.names, lambda: store.read(CLAUDE, NOW), lambda: store.remove(CLAUDE)):
        with pytest.raises(StateError, match="others may look in"):
            use()
    (tmp_path / "logins").chmod(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "logins")
    with pytest.raises(StateError, match="a link"):
        store_at(tmp_path / "link").names()
    store.path(PI).symlink_to(store.path(CLAUDE))
    with pytest.raises(StateError, match="a link"):
        store.look(PI)


GOOD = {
    "schema": 1,
    "saved": "2026-11-30T00:00:00Z",
    "credentials": ["claude-code.login"],
    "sealed": "none",
    "content": json.dumps({"claude-code.login": json.dumps({"claudeAiOauth": claude()})}),
}
DAMAGED = {
    "nothing": b"",
    "not JSON": b"{",
    "a list": b"[]",
    "another schema": json.dumps(GOOD | {"schema": 2}).encode(),
    "true for a number": json.dumps(GOOD | {"schema": True}).encode(),
    "half a surrogate": json.dumps(GOOD | {"saved": "\ud800"}).encode(),
    "a number among names": json.dumps(GOOD | {"credentials": ["claude-code.login", 3]}).encode(),
    "a field more": json.dumps(GOOD | {"more": 1}).encode(),
    "sealed by nobody known": json.dumps(GOOD | {"sealed": "rot13"}).encode(),
    "a credential that there is not": json.dumps(GOOD | {"credentials": ["claude-code.password"]}).encode(),
    "no credential": json.dumps(GOOD | {"credentials": []}).encode(),
    "another content": json.dumps(GOOD | {"content": "{}"}).encode(),
    "a number for a content": json.dumps(GOOD | {"content": 3}).encode(),
    "a megabyte": json.dumps(GOOD | {"content": "x" * (1 << 20)}).encode(),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_is_an_error_that_quotes_nothing(tmp_path: Path, what: str) -> None:
    store = store_at(tmp_path / "logins")
    store.write(CLAUDE, LOGIN, NOW, encrypted=False)
    store.path(CLAUDE).write_bytes(DAMAGED[what])
    with pytest.raises(StateError) as caught:
        store.read(CLAUDE, NOW)
    assert "dummy" not in str(caught.value) + caught.value.hint
    assert "builder login claude-code" in caught.value.hint


@pytest.mark.parametrize("name", ["", "-x", "a/b", "..", "A", "x" * 41, "a.b", "a\n"])
def test_a_name_is_a_plain_word(name: str) -> None:
    with pytest.raises(UsageError):
        LoginName(AgentName.PI, name)


def test_a_login_that_renews_itself_has_one_launch_at_a_time(tmp_path: Path) -> None:
    store = store_at(tmp_path / "logins")
    store.write(CLAUDE, LOGIN, NOW, encrypted=False)
    known = store.look(CLAUDE)
    assert known is not None
    with lease_login(store, CLAUDE, lambda: NOW) as leased:
        assert leased.credentials == LOGIN
        assert is_leased(store, known)
        with pytest.raises(LaunchRefused, match="in use") as caught, lease_login(store, CLAUDE, lambda: NOW):
            pass
        assert caught.value.reason == "credential-busy"
        for change in (
            lambda: forget_login(store, CLAUDE),
            lambda: keep_login(store, CLAUDE, LOGIN, NOW, encrypted=False),
            lambda: require_free(store, CLAUDE),
        ):
            with pytest.raises(LaunchRefused):
                change()
    assert not is_leased(store, known)
    with lease_login(store, CLAUDE, lambda: NOW) as again:
        assert not again.unsure


def test_who_lists_logins_stops_no_launch_and_makes_nothing(tmp_path: Path) -> None:
    store = store_at(tmp_path / "logins")
    store.write(CLAUDE, LOGIN, NOW, encrypted=False)
    known = store.look(CLAUDE)
    assert known is not None
    assert not is_leased(store, known)
    assert not store.path(CLAUDE, lease=True).exists()
    handle = os.open(store.lock_path(CLAUDE), os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(handle, fcntl.LOCK_SH)  # somebody looks just now
    assert not is_leased(store, known)
    looked = threading.Timer(0.05, os.close, (handle,))
    looked.start()
    with lease_login(store, CLAUDE, lambda: NOW) as leased:
        assert leased.credentials == LOGIN
    looked.join()


def test_a_full_disk_and_a_folder_that_cannot_be_read_are_errors_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_at(tmp_path / "logins")
    store.write(CLAUDE, LOGIN, NOW, encrypted=False)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("backend.logins.leasing.os.pwrite", full)
        with pytest.raises(StateError, match="No space"), lease_login(store, CLAUDE, lambda: NOW):
            pass
    monkeypatch.setattr("backend.logins.store.Path.iterdir", full)
    with pytest.raises(StateError, match="cannot be listed"):
        store.names()


def test_a_key_is_shared(tmp_path: Path) -> None:
    store = store_at(tmp_path / "logins")
    store.write(CLAUDE, (credential(Route.CLAUDE_OAUTH_TOKEN),), NOW, encrypted=False)
    with lease_login(store, CLAUDE, lambda: NOW) as one, lease_login(store, CLAUDE, lambda: NOW) as two:
        assert one.credentials == two.credentials


def renewed() -> Credential:
    table = claude(accessToken=dummy("token") + "2", refreshToken=dummy("refresh") + "2")
    raw = json.dumps({"claudeAiOauth": table}).encode()
    return read_credential(named(Route.CLAUDE_LOGIN), raw, NOW)


def test_what_a_use_made_of_it_is_in_its_place_also_when_the_launch_fails(tmp_path: Path) -> None:
    store = store_at(tmp_path / "logins", FakeKeyring())
    store.write(CLAUDE, LOGIN, NOW, encrypted=True)
    new = renewed()
    with contextlib.suppress(HostError), lease_login(store, CLAUDE, lambda: NOW) as leased:
        leased.write_back((new,))
        raise HostError("the launch failed")
    assert store.read(CLAUDE, NOW) == (new,)
    known = store.look(CLAUDE)
    assert known is not None
    assert known.encrypted
    assert not any(secret in everything(tmp_path) for secret in SECRETS)


def test_the_next_launch_is_told_what_did_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("backend.logins.leasing.time.sleep", waited.append)
    store = store_at(tmp_path / "logins")
    store.write(CLAUDE, LOGIN, NOW, encrypted=False)
    with lease_login(store, CLAUDE, lambda: NOW) as leased:
        leased.lose("the container was gone")
    with lease_login(store, CLAUDE, lambda: NOW) as again:
        assert again.unsure
    assert waited == [2.0]
    with lease_login(store, CLAUDE, lambda: NOW) as third:
        assert not third.unsure


def test_a_killed_controller_lets_go_and_the_next_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.logins.leasing.time.sleep", lambda _: None)
    store = store_at(tmp_path / "logins")
    store.write(CLAUDE, LOGIN, NOW, encrypted=False)
    ready, told = os.pipe()
    child = os.fork()
    if not child:
        with lease_login(store, CLAUDE, lambda: NOW):
            os.write(told, b"x")
            os.kill(os.getpid(), 9)
    os.read(ready, 1)
    os.waitpid(child, 0)
    with lease_login(store, CLAUDE, lambda: NOW) as again:
        assert again.unsure
        assert again.credentials == LOGIN
    os.close(ready)
    os.close(told)


def test_a_failure_to_write_back_is_told_and_raises_nothing_into_the_launch(tmp_path: Path) -> None:
    keyring = FakeKeyring()
    store = store_at(tmp_path / "logins", keyring)
    store.write(CLAUDE, LOGIN, NOW, encrypted=True)
    new = renewed()
    with lease_login(store, CLAUDE, lambda: NOW) as leased:
        keyring.locked = True
        leased.write_back((new,))
        assert "cannot be written back" in leased.lost
        keyring.locked = False
        leased.write_back((new,))
        assert not leased.lost
    assert store.read(CLAUDE, NOW) == (new,)


def test_what_is_forgotten_is_gone(tmp_path: Path) -> None:
    store = store_at(tmp_path / "logins")
    store.write(CLAUDE, LOGIN, NOW, encrypted=False)
    forget_login(store, CLAUDE)
    assert store.names() == ()
    assert not any(secret in everything(tmp_path) for secret in SECRETS)
    with pytest.raises(UsageError, match="no login"):
        forget_login(store, CLAUDE)
    with pytest.raises(UsageError, match="no login"):
        store.read(CLAUDE, NOW)
