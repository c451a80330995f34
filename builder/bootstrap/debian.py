"""Debian packages by version and hash: resolved and fetched by apt with the host's own sources."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from builder.bootstrap.children import Host, last_words
from builder.bootstrap.lock import REFRESH, Deb
from builder.roles import Role
from images.errors import NetworkFailed, NetworkReason, PinError

# What mmdebstrap's minbase is made of, in apt's own words.
MINBASE: Final = ("?essential", "?priority(required)", "apt")
# Only what Debian itself signed and released; a host may have other sources, they must not enter the images.
_PREFERENCES: Final = (
    "Package: *\nPin: release o=Debian\nPin-Priority: 500\n\nPackage: *\nPin: release *\nPin-Priority: -1\n"
)
_PRINTED: Final = re.compile(
    r"'[^']*' (?P<name>[a-z0-9+.-]+)_(?P<version>[^_ ]+)_(?P<arch>[a-z0-9]+)\.deb (?P<size>\d+) "
    r"SHA256:(?P<sha256>[0-9a-f]{64})"
)
_ARCHITECTURES: Final = {"amd64": "amd64"}


@dataclass(frozen=True, slots=True)
class Apt:
    """apt with the host's sources and keys, and state, cache and preferences of our own: no root needed."""

    host: Host
    folder: Path
    architecture: str

    def options(self) -> tuple[str, ...]:
        """Options on the command line, because there they win over the host's apt.conf."""
        values = {
            "Dir::State": self.folder / "state",
            "Dir::State::status": self.folder / "status",
            "Dir::Cache": self.folder / "cache",
            "Dir::Etc::Preferences": self.folder / "preferences",
            "Dir::Etc::PreferencesParts": "/dev/null",
            "APT::Architecture": self.architecture,
            "APT::Sandbox::User": "",
            "APT::Install-Recommends": "false",
            "APT::Install-Suggests": "false",
            "APT::Update::Error-Mode": "any",
            "Acquire::Languages": "none",
            "Acquire::ForceHash": "SHA256",
            "Acquire::Retries": "3",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled": "false",
        }
        if self.host.authorities is not None:
            values["Acquire::https::CAInfo"] = self.host.authorities
        pairs = [("-o", f"{name}={value}") for name, value in values.items()]
        return tuple(part for pair in pairs for part in pair)

    def update(self) -> str:
        """Read the package lists; returns what went wrong with any of them, or nothing."""
        for part in ("state/lists/partial", "cache/archives/partial"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").write_bytes(b"")
        (self.folder / "preferences").write_text(_PREFERENCES)
        outcome = self.host.call("apt-get", *self.options(), "-qq", "update", deadline=900.0)
        return "" if outcome.ok else last_words(outcome) or f"apt-get update: exit code {outcome.exit_code}"

    def resolve(self, wanted: Iterable[str]) -> tuple[Deb, ...]:
        """minbase and ``wanted`` with all they depend on, nothing recommended; ``images`` is left empty."""
        outcome = self.host.call(
            "apt-get", *self.options(), "-qq", "-y", "--print-uris", "install", *MINBASE, *wanted
        )
        if not outcome.ok:
            raise PinError(f"apt cannot resolve {' '.join(wanted)}: {last_words(outcome)}")
        found = []
        for line in outcome.stdout.decode().splitlines():
            match = _PRINTED.fullmatch(line.strip())
            if match is None:
                raise PinError(f"apt printed an unexpected line: {line[:200]!r}")
            version = match["version"].replace("%3a", ":").replace("%7e", "~")
            found.append(Deb(match["name"], version, match["arch"], int(match["size"]), match["sha256"], ()))
        return tuple(found)

    def available(self, names: Sequence[str]) -> frozenset[tuple[str, str]]:
        """Name and version of every package that the sources offer under these names."""
        outcome = self.host.call("apt-cache", *self.options(), "madison", *names)
        fields = (line.split("|") for line in outcome.stdout.decode().splitlines())
        return frozenset((part[0].strip(), part[1].strip()) for part in fields if len(part) >= 2)

    def download(self, debs: Sequence[Deb], pool: Path) -> str:
        """Fetch into ``pool``; returns what went wrong, or nothing."""
        wanted = tuple(f"{deb.name}={deb.version}" for deb in debs)
        outcome = self.host.call(
            "apt-get", *self.options(), "-qq", "download", *wanted, deadline=1800.0, working_dir=pool
        )
        return "" if outcome.ok else last_words(outcome) or f"apt-get download: exit code {outcome.exit_code}"


def apt_for(host: Host, architecture: str) -> Apt:
    """apt for this architecture, with its folder in the cache."""
    return Apt(host, host.cache / "apt", _ARCHITECTURES[architecture])


def fetch_debs(apt: Apt, debs: Sequence[Deb]) -> Path:
    """A folder that holds every one of ``debs``, each checked against its SHA-256.

    A version that no source offers any more is PinError naming it; lists or packages that cannot be read are
    NetworkFailed; other bytes under the same version are PinError and are not kept.
    """
    pool = apt.host.cache / "debs"
    pool.mkdir(parents=True, exist_ok=True)
    missing = [deb for deb in debs if not _is_there(pool, deb)]
    if missing:
        apt.host.progress(f"fetching {_amount(missing)}")
        trouble = apt.update()
        _refuse_vanished(apt, missing, trouble)
        trouble = apt.download(missing, pool)
        wrong = [deb for deb in missing if not _is_there(pool, deb)]
        if wrong and trouble:
            raise NetworkFailed(NetworkReason.UNREACHABLE, f"apt could not fetch {wrong[0].name}: {trouble}")
        if wrong:
            _refuse_wrong(pool, wrong)
    return pool


def _is_there(pool: Path, deb: Deb) -> bool:
    path = pool / deb.file_name
    if not path.is_file() or path.stat().st_size != deb.size:
        return False
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == deb.sha256


def _amount(debs: Sequence[Deb]) -> str:
    packages = "1 Debian package" if len(debs) == 1 else f"{len(debs)} Debian packages"
    megabytes = sum(deb.size for deb in debs) // 1_000_000
    return f"{packages}, {megabytes} MB" if megabytes else f"{packages}, less than 1 MB"


def _refuse_vanished(apt: Apt, missing: Sequence[Deb], trouble: str) -> None:
    offered = apt.available([deb.name for deb in missing])
    vanished = [deb for deb in missing if (deb.name, deb.version) not in offered]
    if not vanished:
        return
    if trouble:
        raise NetworkFailed(NetworkReason.UNREACHABLE, f"apt cannot read the package lists: {trouble}")
    named = ", ".join(f"{deb.name} {deb.version}" for deb in vanished[:5])
    more = f" and {len(vanished) - 5} more" if len(vanished) > 5 else ""
    raise PinError(
        f"no longer offered by this host's apt sources: {named}{more}", where="bootstrap.lock", hint=REFRESH
    )


def _refuse_wrong(pool: Path, wrong: Sequence[Deb]) -> None:
    for deb in wrong:
        (pool / deb.file_name).unlink(missing_ok=True)
    named = ", ".join(f"{deb.name} {deb.version}" for deb in wrong[:5])
    raise PinError(f"other bytes than the lock names: {named}", where="bootstrap.lock", hint=REFRESH)


def merge(resolved: Sequence[tuple[Role, Sequence[Deb]]]) -> tuple[Deb, ...]:
    """One list for all images; a package that several need is named once, with all of them."""
    found: dict[tuple[str, str, str], Deb] = {}
    for role, debs in resolved:
        for deb in debs:
            key = (deb.name, deb.version, deb.architecture)
            roles = found[key].images if key in found else ()
            found[key] = Deb(*key, deb.size, deb.sha256, tuple(sorted({*roles, role})))
    return tuple(found[key] for key in sorted(found))
