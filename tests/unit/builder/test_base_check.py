"""What a base must bring: each lack, each conflict and each setting of its own is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.building.base_check import read_base
from images.errors import ExitCode, UsageError
from tests.fakes.bases import GROUP, PASSWD, PROGRAMS, Member, make_base, programs


def test_the_facts_of_a_base(tmp_path: Path) -> None:
    facts = read_base(make_base(tmp_path))
    assert (facts.init, facts.shell) == ("/usr/bin/catatonit", "/usr/bin/bash")
    assert (facts.accounts.passwd, facts.accounts.group) == (PASSWD, GROUP)


def test_a_later_layer_decides(tmp_path: Path) -> None:
    above: list[Member] = [
        ("etc/passwd", b"root:x:0:0::/:/bin/sh\n", 0o644),
        ("usr/bin/.wh.bash", b"", 0o644),
        ("usr/bin/tini", b"x", 0o755),
        ("usr/bin/.wh.catatonit", b"", 0o644),
    ]
    facts = read_base(make_base(tmp_path, programs(), above))
    assert (facts.init, facts.shell) == ("/usr/bin/tini", "/usr/bin/sh")
    assert facts.accounts.passwd == b"root:x:0:0::/:/bin/sh\n"


LOADER = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"


@pytest.mark.parametrize(
    "above",
    [
        [("usr/lib/x86_64-linux-gnu/.wh.ld-linux-x86-64.so.2", b"", 0o644)],
        [("lib64", None, 0o755)],
        [(LOADER, None, 0o755)],
        [("usr/lib/ld-musl-x86_64.so.1", b"x", 0o755), (LOADER, "/usr/lib/ld-musl-x86_64.so.1", 0o777)],
    ],
)
def test_a_base_without_glibc_is_refused(tmp_path: Path, above: list[Member]) -> None:
    with pytest.raises(
        UsageError, match=r"the base lacks glibc's loader /lib64/ld-linux-x86-64\.so\.2$"
    ) as caught:
        read_base(make_base(tmp_path, programs(), above))
    assert caught.value.code is ExitCode.USAGE


DPKG: list[Member] = [
    ("usr/bin/dpkg", b"x", 0o755),
    ("var/lib/dpkg/status", b"Package: git\n", 0o644),
    ("usr/lib/os-release", b'ID=debian\nVERSION_CODENAME="bookworm"\nPRETTY_NAME="x"\n', 0o644),
    ("etc/os-release", "../usr/lib/os-release", 0o777),
    ("var/cache/private", None, 0o700),
]


def test_the_facts_of_a_debian_base(tmp_path: Path) -> None:
    found = read_base(make_base(tmp_path, programs(), DPKG)).debian
    assert found is not None
    assert (found.distribution, found.codename, found.status) == ("debian", "bookworm", b"Package: git\n")
    assert found.aliases == {"bin": "usr/bin", "lib64": "usr/lib64"}
    assert found.directories["var/cache/private"] == (0o700, 0, 0)
    assert found.directories["usr/bin"] == (0o755, 0, 0)
    assert "bin" not in found.directories


@pytest.mark.parametrize("path", ["usr/bin/dpkg", "var/lib/dpkg/status"])
def test_a_base_without_dpkg_has_no_such_facts(tmp_path: Path, path: str) -> None:
    members = [member for member in DPKG if member[0] != path]
    assert read_base(make_base(tmp_path, programs(), members)).debian is None


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "bash"])
def test_each_missing_program_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"the base lacks .*{name}") as caught:
        read_base(make_base(tmp_path, programs(without=(name,))))
    assert caught.value.code is ExitCode.USAGE
    assert "builder bootstrap" in caught.value.hint


@pytest.mark.parametrize(
    "above",
    [
        [("usr/bin/git", b"x", 0o644)],
        [("usr/bin/git", "nowhere", 0o777)],
        [("usr/bin/git", "git", 0o777)],
        [("usr/bin/git", None, 0o755), ("usr/bin/.wh.git", b"", 0o644)],
    ],
)
def test_what_only_looks_like_a_program_is_missing(tmp_path: Path, above: list[Member]) -> None:
    with pytest.raises(UsageError, match="the base lacks git"):
        read_base(make_base(tmp_path, programs(), above))


def test_the_builds_own_programs_lie_on_its_own_path(tmp_path: Path) -> None:
    above: list[Member] = [
        ("usr/bin/.wh.gzip", b"", 0o644),
        ("usr/bin/.wh.env", b"", 0o644),
        ("usr/local/bin/gzip", b"x", 0o755),
        ("usr/local/bin/env", b"x", 0o755),
        ("usr/local/bin/git", b"x", 0o755),
        ("usr/bin/.wh.git", b"", 0o644),
    ]
    with pytest.raises(UsageError, match=r"the base lacks gzip, /usr/bin/env$"):
        read_base(make_base(tmp_path, programs(), above))


def test_an_opaque_directory_hides_what_is_below(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the base lacks sh, timeout"):
        read_base(make_base(tmp_path, programs(), [("usr/bin/.wh..wh..opq", b"", 0o644)]))


@pytest.mark.parametrize("path", ["opt/agents", "workspace", "usr/local/bin/claude", "opt/builder"])
def test_a_place_that_is_ours_must_be_free(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError, match=f"already has /{path}"):
        read_base(make_base(tmp_path, [*programs(), (path, None, 0o755)]))


@pytest.mark.parametrize("path", ["opt", "home"])
def test_a_link_where_we_need_a_directory_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError, match=f"/{path} of the base is not a directory"):
        read_base(make_base(tmp_path, [*programs(), (path, "usr", 0o777)]))


@pytest.mark.parametrize("path", ["etc/passwd", "etc/group"])
def test_accounts_must_be_regular_files(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError, match=f"no regular file /{path}"):
        read_base(make_base(tmp_path, programs(), [(path, "elsewhere", 0o777)]))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"Volumes": {"/data": {}}}, "volumes .*/data"),
        ({"OnBuild": ["RUN x"]}, "ONBUILD"),
        ({"Healthcheck": {"Test": ["CMD", "x"]}}, "health check"),
        ({"Env": ["PATH=/bin", "NODE_OPTIONS=--require=x"]}, r"environment .*\(NODE_OPTIONS\)"),
        ({"Labels": {"maintainer": "x"}}, "labels .*maintainer"),
    ],
)
def test_behaviour_of_the_bases_own_is_refused(
    tmp_path: Path, config: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read_base(make_base(tmp_path, config=config))


def test_a_value_of_the_environment_is_never_shown(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_base(make_base(tmp_path, config={"Env": ["TOKEN=hunter2"]}))
    assert "hunter2" not in str(caught.value)
