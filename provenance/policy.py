"""policy.toml as values: read from a place that nobody else can write, parsed strictly."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from images.config import NetworkPeer, parse_duration, parse_peer
from images.digests import Digest
from images.errors import LaunchReason, UsageError
from images.lock import ArtifactKind, Authentication
from images.tomlfile import error_at, read_toml
from provenance.keys import load_public_key
from provenance.npm_signatures import read_registry_key, shipped_keys
from provenance.origins import Origins
from provenance.policy_model import (
    ACCEPTABLE,
    BY_DESCRIPTOR,
    KEY,
    ROLE_TYPES,
    AuditGap,
    EnableToml,
    PolicyToml,
    Role,
    TrustToml,
)
from provenance.publishers import NEEDS_ROOT, publishers_from
from provenance.signers import Identity, Keyless, TrustedSigner, Who, party, who_is
from provenance.sigstore_root import MAX_ROOT_BYTES, SigstoreRoot, read_sigstore_root
from provenance.small_files import dangling_link

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_POLICY_BYTES: Final = 1024 * 1024
POLICY_NAME: Final = "policy.toml"


class Mode(StrEnum):
    """REQUIRED: rootless engines, an expectation, pinned bases. DEVELOPMENT: others too; records say so."""

    REQUIRED = "required"
    DEVELOPMENT = "development"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A thing accepted by name, with the operator's reason."""

    what: LaunchReason | AuditGap
    why: str


@dataclass(frozen=True, slots=True)
class Revoked:
    """What is no longer believed. ``keys``: fingerprints; ``identities``: under whichever issuer."""

    digests: frozenset[Digest]
    keys: frozenset[Digest]
    builder_ids: frozenset[str]
    identities: frozenset[str] = frozenset()

    def has(self, who: Who) -> bool:
        """Whether this signer is revoked."""
        return who.name in self.identities if isinstance(who, Identity) else who in self.keys


@dataclass(frozen=True, slots=True)
class Trusted:
    """One signer in one role: what he may call himself, which predicate types he signs, until when (UTC)."""

    role: Role
    signer: TrustedSigner
    ids: frozenset[str]
    predicate_types: frozenset[str]
    not_after: datetime | None

    @property
    def who(self) -> Who:
        """Its fingerprint, or its identity."""
        return who_is(self.signer)


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """Where the value of a server's variable is: a file, or (``None``) a descriptor at each launch."""

    server: str
    variable: str
    path: Path | None


@dataclass(frozen=True, slots=True)
class Enable:
    """Names of the MCP servers and Skills that are turned on, in launches of every image of this policy."""

    mcp: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    secrets: tuple[SecretPlace, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy. ``digest``: SHA-256 of the file's bytes. ``network``: the ceiling of what runs may reach."""

    path: Path
    digest: Digest
    serial: int
    valid_until: datetime
    mode: Mode
    accept: tuple[Acceptance, ...]
    max_age: timedelta | None
    min_rebuilds: int
    min_ruleset: int
    nested_opened: bool
    opaque: frozenset[Digest]
    origins: Origins
    require_audit: bool
    bases: frozenset[Digest]
    revoked: Revoked
    network: tuple[NetworkPeer, ...]
    enable: Enable
    rehash_store: bool
    expect: tuple[tuple[str, Digest], ...]
    trust: tuple[Trusted, ...]

    def expected_lock(self, image_name: str) -> Digest | None:
        """The lock digest that ``[expect]`` has for an image name."""
        return dict(self.expect).get(image_name)

    def accepts(self, what: LaunchReason | AuditGap) -> Acceptance | None:
        """The acceptance of this name, if there is one."""
        return next((one for one in self.accept if one.what is what), None)


def find_policy(candidates: Sequence[Path]) -> Path:
    """The first of the places that exists; there is no merging. Raises UsageError naming all of them.

    A link to nothing exists: the next place would be another policy than the one that was meant.
    """
    for path in candidates:
        if path.exists() or dangling_link(path) is not None:
            return path
    raise UsageError(
        "no policy, so nothing is trusted; looked for " + ", ".join(map(str, candidates)),
        where=POLICY_NAME,
        hint="builder init",
    )


def load_policy(path: Path, *, beside: Path | None = None) -> Policy:
    """Read and parse a policy file. ``beside``: the directory of the builder.toml in use, if one is.

    Refused: a file, key file or folder that others can write; a policy in or under ``beside`` or in an OCI
    layout, because whoever makes the image would then approve it himself. Raises UsageError or KeyUnusable.
    """
    _check_place(path, beside)
    raw = _read_guarded(path, MAX_POLICY_BYTES)
    return parse_policy(
        raw, path=path, read_key=lambda name: _read_guarded(path.parent / name, MAX_ROOT_BYTES)
    )


def parse_policy(raw: bytes, *, path: Path, read_key: Callable[[str], bytes]) -> Policy:
    """From untrusted bytes; ``read_key`` gives the PEM of a key file named in it."""
    where = str(path)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("not UTF-8", where=where, hint=f"correct {where}") from None
    found = read_toml(text, where, PolicyToml)
    trust = tuple(_trusted(entry, where, read_key) for entry in found.trust)
    _check_separate(trust, text, where)
    _check_rebuilders(trust, found.min_rebuilds, text, where)
    if found.publishers and found.sigstore_root is None:
        raise error_at(text, where, ["publishers"], f"{NEEDS_ROOT}, which is not here")
    return Policy(
        path=path,
        digest=Digest.of(raw),
        serial=found.serial,
        valid_until=found.valid_until.astimezone(UTC),
        mode=Mode(found.mode),
        accept=tuple(Acceptance(ACCEPTABLE[one.what], one.why) for one in found.accept),
        max_age=timedelta(seconds=parse_duration(found.max_age)) if found.max_age else None,
        min_rebuilds=found.min_rebuilds,
        min_ruleset=found.min_ruleset,
        nested_opened=found.nested == "opened",
        opaque=frozenset(map(Digest, found.opaque)),
        origins=_origins(found, where, read_key),
        require_audit=found.require_audit,
        bases=frozenset(map(Digest, found.bases)),
        revoked=Revoked(
            digests=frozenset(map(Digest, found.revoked.digests)),
            keys=frozenset(map(Digest, found.revoked.keys)),
            builder_ids=frozenset(found.revoked.builder_ids),
            identities=frozenset(found.revoked.identities),
        ),
        network=tuple(sorted({parse_peer(text) for text in found.network})),
        enable=_enable(found.enable, path),
        rehash_store=found.engine_store == "rehash",
        expect=tuple(sorted((name, Digest(value)) for name, value in found.expect.items())),
        trust=trust,
    )


def _enable(found: EnableToml, path: Path) -> Enable:
    return Enable(
        mcp=tuple(sorted(found.mcp)),
        skills=tuple(sorted(found.skills)),
        secrets=tuple(
            SecretPlace(
                server,
                variable,
                None if place == BY_DESCRIPTOR else path.parent / place.removeprefix("file:"),
            )
            for server, places in sorted(found.secrets.items())
            for variable, place in sorted(places.items())
        ),
    )


def _origins(found: PolicyToml, where: str, read_key: Callable[[str], bytes]) -> Origins:
    tofu = {Authentication.TOFU} if found.refuse_tofu else set()
    own = {
        key_id: read_registry_key(key_id, read_key(name), f"{where}, key {name}")
        for key_id, name in found.npm_keys.items()
    }
    return Origins(
        refuse=frozenset(map(Authentication, found.refuse)) | tofu,
        require=tuple(
            (ArtifactKind(kind), frozenset(map(Authentication, ways)))
            for kind, ways in sorted(found.require.items())
        ),
        refuse_signers=frozenset(found.refuse_signers),
        npm_keys=own or shipped_keys(),
        publishers=publishers_from(found.publishers, _sigstore_root(found.sigstore_root, where, read_key)),
    )


def _sigstore_root(name: str | None, where: str, read_key: Callable[[str], bytes]) -> SigstoreRoot | None:
    return None if name is None else read_sigstore_root(read_key(name), f"{where}, {name}")


def _trusted(entry: TrustToml, where: str, read_key: Callable[[str], bytes]) -> Trusted:
    role = Role(entry.role)
    return Trusted(
        role=role,
        signer=_signer(entry, where, read_key),
        ids=frozenset(entry.builder_ids or entry.verifier_ids or entry.launcher_ids or entry.rebuilder_ids),
        predicate_types=frozenset(entry.predicate_types or ROLE_TYPES[role]),
        not_after=entry.not_after.astimezone(UTC) if entry.not_after else None,
    )


def _signer(entry: TrustToml, where: str, read_key: Callable[[str], bytes]) -> TrustedSigner:
    """The policy says of which kind a signature must be; a bundle has no say in it."""
    if entry.kind == KEY:
        return load_public_key(read_key(entry.key), f"{where}, key {entry.key}")
    root = read_sigstore_root(read_key(entry.trusted_root), f"{where}, {entry.trusted_root}")
    return Keyless(Identity(entry.identity, entry.issuer), root)


def _check_separate(trust: tuple[Trusted, ...], text: str, where: str) -> None:
    """One signer, one role: with one in two roles, one stolen key or login would be enough.

    An identity is the same one under whichever issuer, as long as roles are kept apart.
    """
    for number, entry in enumerate(trust):
        for other in trust[:number]:
            if not _same(entry, other):
                continue
            kind = "identity" if isinstance(entry.who, Identity) else "key"
            roles = f"as {other.role} and as {entry.role}" if other.role is not entry.role else "twice"
            place: list[str | int] = ["trust", number, kind]
            raise error_at(text, where, place, f"the same {kind} is trusted {roles}; expected it once")


def _same(entry: Trusted, other: Trusted) -> bool:
    who, whom = entry.who, other.who
    if entry.role is not other.role and isinstance(who, Identity) and isinstance(whom, Identity):
        return who.name == whom.name
    return who == whom


def _check_rebuilders(trust: tuple[Trusted, ...], wanted: int, text: str, where: str) -> None:
    """A rebuilder is somebody else than the builder, and there are as many as the policy asks for."""
    rebuilders = [number for number, entry in enumerate(trust) if entry.role is Role.REBUILDER]
    builders = {name for entry in trust if entry.role is Role.BUILDER for name in entry.ids}
    for number in rebuilders:
        same = sorted(trust[number].ids & builders)
        if same:
            place: list[str | int] = ["trust", number, "rebuilder_ids"]
            raise error_at(text, where, place, f"{same[0]} is a builder's id; expected one of its own")
    count = len({party(trust[number].who) for number in rebuilders})
    if wanted > count:
        said = f"{count} rebuilders are trusted"
        raise error_at(text, where, ["min_rebuilds"], f"{wanted} are asked for, but {said}")


def _check_place(path: Path, beside: Path | None) -> None:
    try:
        real = path.resolve()
    except RuntimeError:  # what Python 3.11 says to a loop of links
        why = "cannot be read: too many levels of symbolic links"
        raise UsageError(why, where=str(path), hint="builder init") from None
    # The path as given counts too: a link in the repository would let its author choose the policy.
    given = path.parent.resolve() / path.name
    if beside is not None and any(one.is_relative_to(beside.resolve()) for one in (real, given)):
        raise UsageError(
            f"the policy lies under {beside}, the folder of builder.toml: an image cannot approve itself",
            where=str(path),
            hint="move it out of there: builder init writes one where it belongs",
        )
    for folder in (*real.parents, *given.parents):
        if (folder / "oci-layout").exists():
            raise UsageError(
                f"the policy lies in the OCI layout {folder}", where=str(path), hint="builder init"
            )


def _read_guarded(path: Path, limit: int) -> bytes:
    """A regular file that, like its folder, belongs to us or root and that nobody else can write."""
    try:
        real = path.resolve(strict=True)
        _check_guarded(real.parent.stat(), real.parent)
        handle = os.open(real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    except (OSError, ValueError, RuntimeError) as broken:
        why = getattr(broken, "strerror", None) or "not a path"
        raise UsageError(f"cannot be read: {why}", where=str(path), hint="builder init") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError("not a regular file", where=str(path), hint="builder init")
        _check_guarded(status, real)
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(handle)
    if len(data) > limit:
        raise UsageError(f"more than {limit} bytes", where=str(path))
    return data


def _check_guarded(status: os.stat_result, path: Path) -> None:
    if not hasattr(os, "geteuid"):
        return  # no such owners and modes on this system
    if status.st_uid not in (0, os.geteuid()):
        raise UsageError(f"belongs to uid {status.st_uid}, neither root nor us", where=str(path))
    # In a sticky folder (/tmp) others cannot replace what is not theirs.
    sticky_folder = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & 0o022 and not sticky_folder:
        raise UsageError(
            f"others can write it (mode {stat.S_IMODE(status.st_mode):04o}), so it is not trusted",
            where=str(path),
            hint=f"chmod go-w {path}",
        )
