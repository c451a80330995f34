"""A bare Debian machine: a fresh tree in namespaces of its own, with a network of its own and no engine.

As root. Nothing of this machine goes in but what its administrator would give any new one: where packages
come from (apt, pip, npm), and whose certificates count. Whoever runs inside sees no process, mount or network
interface of this machine; the kernel and its cgroups are this machine's.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CA_FOLDER: Final = Path("usr/local/share/ca-certificates")
# What a new machine is given: files of this one, by the same names. What ends in / is a folder.
GIVEN: Final = ("etc/hosts", "etc/pip.conf", "root/.npmrc", f"{CA_FOLDER}/", "etc/apt/trusted.gpg.d/")
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty", "fuse", "net/tun")
# The first process of the new machine: makes its mounts, leaves this machine's behind, reaps whoever dies.
BOOT: Final = r"""
set -eu
tree=$1; shift
mount --make-rprivate /
mount --bind "$tree" "$tree"
cd "$tree"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm dev/net
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for one in 0/stdin 1/stdout 2/stderr; do ln -s /proc/self/fd/${one%/*} dev/${one#*/}; done
for one in "$@"; do
    [ -c "/dev/$one" ] || continue
    mknod -m "$(stat -c %a "/dev/$one")" "dev/$one" c $(stat -c '0x%t 0x%T' "/dev/$one")
done
# A new machine has no tunnel open to everybody.
[ ! -c dev/net/tun ] || chmod 600 dev/net/tun
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p run/lock run/user
pivot_root . mnt
cd /
umount -l /mnt
mount --make-rshared /
hostname bare
echo ready
while :; do sleep 3600 & wait; done
"""


@dataclass(frozen=True)
class BareMachine:
    """``tree``: its root, as this machine sees it. ``init``: its first process, as this machine counts."""

    tree: Path
    init: int

    def enter(self, *argv: str, user: str = "root") -> tuple[str, ...]:
        """The argv that runs this inside, as this user after a login, without our environment."""
        home = "/root" if user == "root" else f"/home/{user}"
        change = () if user == "root" else ("runuser", "-u", user, "--")
        return (
            *("nsenter", f"--target={self.init}", "--mount", "--net", "--pid", "--uts", "--ipc", "--"),
            *change,
            *("env", "-i", "-C", home, f"PATH={PATH}", f"HOME={home}", f"USER={user}", f"LOGNAME={user}"),
            *("LANG=C.UTF-8", "TERM=dumb", *argv),
        )

    def call(self, *argv: str, user: str = "root") -> str:
        """Run it inside; what it says must be good."""
        done = subprocess.run(
            self.enter(*argv, user=user),
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            sys.exit(f"{' '.join(argv)}: {done.stderr[-2000:]}")
        return done.stdout


@contextlib.contextmanager
def bare_machine(folder: Path, suite: str = "bookworm") -> Iterator[BareMachine]:
    """Made in ``folder``; ended, and the tree removed, when this ends."""
    tree = folder / "tree"
    make_tree(tree, suite)
    argv = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--")
    boot = subprocess.Popen(
        [*argv, "sh", "-c", BOOT, "sh", str(tree), *DEVICES], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    try:
        assert boot.stdout is not None
        if boot.stdout.readline() != b"ready\n":
            sys.exit("the new machine did not start")
        init = int(Path(f"/proc/{boot.pid}/task/{boot.pid}/children").read_text().split()[0])
        machine = BareMachine(tree, init)
        with connected(machine):
            yield machine
    finally:
        boot.send_signal(
            signal.SIGKILL
        )  # its child, the first process inside, goes with it; all others with that
        boot.wait()
        remove(tree)


def make_tree(tree: Path, suite: str) -> None:
    """The least that Debian calls a system with apt, from where this machine's apt takes its packages."""
    options = acquire_options()
    with tempfile.TemporaryDirectory() as name:
        done = subprocess.run(
            [
                *("mmdebstrap", "--mode=root", "--variant=minbase", "--include=ca-certificates"),
                *(f"--aptopt={option}" for option in options),
                *(suite, str(tree), "-"),
            ],
            input=apt_sources(),
            env={"PATH": PATH, "TMPDIR": name},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        sys.exit(f"no Debian tree: {done.stderr[-2000:]}")
    for given in GIVEN:
        ours, theirs = Path("/") / given, tree / given
        if given.endswith("/") and ours.is_dir():
            shutil.copytree(ours, theirs, dirs_exist_ok=True)
        elif ours.is_file():
            shutil.copy(ours, theirs)
    with (tree / "etc/hosts").open("a") as hosts:
        hosts.write("127.0.1.1 bare\n")
    (tree / "etc/apt/apt.conf.d/90this-network").write_text("".join(f"{one}\n" for one in options))
    (tree / "etc/resolv.conf").write_text("nameserver 10.0.2.3\n")  # of slirp4netns


def acquire_options() -> tuple[str, ...]:
    """What apt on this machine was told of its way to the archives."""
    said = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    wanted = re.compile(r'Acquire::(?:https?::(?!User-Agent)\S+|Retries|ForceIPv4) ".+";')
    return tuple(line for line in said.splitlines() if wanted.fullmatch(line))


def apt_sources() -> str:
    """Whatever their form: as lines."""
    entries = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return "".join(f"deb {line}\n" for line in dict.fromkeys(entries))


@contextlib.contextmanager
def connected(machine: BareMachine) -> Iterator[None]:
    """A way out by slirp4netns, as a virtual machine has: no port of this machine's loopback is reached."""
    argv = ["slirp4netns", "--configure", "--mtu=65520", "--disable-host-loopback", "--ready-fd=1"]
    way = subprocess.Popen(
        [*argv, str(machine.init), "tap0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    try:
        assert way.stdout is not None
        if way.stdout.read(1) != b"1":
            sys.exit("slirp4netns did not start")
        yield
    finally:
        way.terminate()
        way.wait()


def remove(tree: Path) -> None:
    """The tree; a mount that somebody inside left is gone with his namespace, a moment later."""
    for _ in range(50):
        shutil.rmtree(tree, ignore_errors=True)
        if not tree.exists():
            return
        time.sleep(0.2)
    print(f"note: something is left in {tree}", file=sys.stderr)


def add_authority(machine: BareMachine, certificate: Path, name: str) -> None:
    """Another one whose certificates count inside, as a company adds its own."""
    shutil.copy(certificate, machine.tree / CA_FOLDER / f"{name}.crt")
    machine.call("update-ca-certificates")
