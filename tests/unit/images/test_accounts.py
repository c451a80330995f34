"""The accounts of an image: what is added, what is used as it is, what is refused."""

from __future__ import annotations

import pytest

from images.accounts import Accounts, with_accounts
from images.config import UserAccount
from images.errors import ExitCode, UsageError
from tests.fakes.bases import GROUP, PASSWD

AGENT = UserAccount("agent", 1000, 1000)


def test_both_accounts_are_added_at_the_end() -> None:
    found = with_accounts(Accounts(PASSWD, GROUP), AGENT, "/bin/bash")
    assert found.passwd == PASSWD + (
        b"agent:x:1000:1000::/home/agent:/bin/bash\nwatch:x:997:997::/nonexistent:/usr/sbin/nologin\n"
    )
    assert found.group == GROUP + b"agent:x:1000:\nwatch:x:997:\n"


def test_a_missing_last_newline_is_mended() -> None:
    found = with_accounts(Accounts(PASSWD.rstrip(b"\n"), GROUP.rstrip(b"\n")), AGENT, "/bin/sh")
    assert found.passwd.startswith(PASSWD)
    assert found.group.startswith(GROUP)


def test_an_account_that_is_exactly_the_agents_is_used() -> None:
    passwd = PASSWD + b"agent:x:1000:1000:Agent:/home/agent:/bin/zsh\n"
    group = GROUP + b"agent:x:1000:someone\n"
    found = with_accounts(Accounts(passwd, group), AGENT, "/bin/sh")
    assert found.passwd == passwd + b"watch:x:997:997::/nonexistent:/usr/sbin/nologin\n"
    assert found.group == group + b"watch:x:997:\n"


@pytest.mark.parametrize(
    ("passwd", "group", "named"),
    [
        (b"node:x:1000:1000::/home/node:/bin/sh\n", b"", "'node'"),
        (b"agent:x:1001:1000::/home/agent:/bin/sh\n", b"", "'agent'"),
        (b"agent:x:1000:1000::/home/other:/bin/sh\n", b"", "'agent'"),
        (b"", b"staff:x:1000:\n", "'staff'"),
        (b"systemd-x:x:997:997::/:/bin/sh\n", b"", "'systemd-x'"),
        (b"", b"systemd-x:x:997:\n", "'systemd-x'"),
    ],
)
def test_an_id_or_name_of_somebody_else_is_named(passwd: bytes, group: bytes, named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        with_accounts(Accounts(PASSWD + passwd, GROUP + group), AGENT, "/bin/sh")
    assert caught.value.code is ExitCode.USAGE
    assert caught.value.hint


def test_what_to_write_for_an_account_of_the_base() -> None:
    """A base whose uid 1000 is `node`: agents can be that account, with its own name and home."""
    passwd, group = PASSWD + b"node:x:1000:1000::/home/node:/bin/sh\n", GROUP + b"node:x:1000:\n"
    with pytest.raises(UsageError, match="'node' with 1000:1000 at /home/node") as refused:
        with_accounts(Accounts(passwd, group), AGENT, "/bin/sh")
    assert 'user = { name = "node", uid = 1000, gid = 1000 }' in refused.value.hint
    found = with_accounts(Accounts(passwd, group), UserAccount("node", 1000, 1000), "/bin/sh")
    assert found.passwd.count(b":1000:1000:") == 1


@pytest.mark.parametrize(
    "line",
    [
        b"node:x:1000:1000::/srv/node:/bin/sh\n",  # its home is another: agents would have none
        b"node:x:1000:0::/home/node:/bin/sh\n",
        b"No de:x:1000:1000::/home/No de:/bin/sh\n",
        b"nobody:x:1000:1000::/home/nobody:/bin/sh\n",
    ],
)
def test_an_account_that_no_agent_can_be_is_not_suggested(line: bytes) -> None:
    with pytest.raises(UsageError) as refused:
        with_accounts(Accounts(b"root:x:0:0::/:/bin/sh\n" + line, GROUP), AGENT, "/bin/sh")
    assert "choose a free account" in refused.value.hint


@pytest.mark.parametrize(
    "line", [b"agent\n", b"x:x:-1:0:::\n", b"x:x:\xd9\xa1:0:::\n", b"x:x:99999999999:0:::\n"]
)
def test_a_line_that_is_no_account_is_refused(line: bytes) -> None:
    with pytest.raises(UsageError, match="line 3 of the base's /etc/passwd"):
        with_accounts(Accounts(PASSWD + line, GROUP), AGENT, "/bin/sh")
