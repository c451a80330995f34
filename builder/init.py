"""First files: builder.toml for the image; policy.toml, settings.toml, role keys for this user and host."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from backend.probe import HostProbe, ProbeState
from builder.init_texts import BUILDER_TOML, POLICY_TOML, SETTINGS_TOML, TRUST_TOML
from builder.locking import open_project
from builder.settings.settings_file import SETTINGS_NAME, parse_settings
from builder.state import State
from images.config import BaseReference, NetworkPeer, parse_config
from images.credentials import Secret
from images.errors import CredentialFound, LaunchReason, StateError, UsageError, VerifyFailed
from provenance.keys import MAX_KEY_BYTES, Protection, create_key_pair, load_public_key
from provenance.marks import check_marks, pin_marks, read_marks
from provenance.policy import POLICY_NAME, Mode, Policy, load_policy
from provenance.policy_model import Role
from provenance.small_files import read_small
from provenance.writing import replace_file

CONFIG_NAME: Final = "builder.toml"
KEYS: Final = "keys"
# Who builds, verifies and launches here. A rebuilder is somebody else, usually elsewhere: only on demand.
ROLES: Final = (Role.BUILDER, Role.VERIFIER, Role.LAUNCHER)
VALID_FOR: Final = timedelta(days=365)
PROXIES: Final = ("http", "https")
# Where distributions keep the CA bundle that their package clients trust.
CA_BUNDLES: Final = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitRequest:
    """What init is told. ``now``: UTC. ``probe``: what the host can do; None if no engine answered.

    ``directory`` takes builder.toml, ``config_dir`` everything else. ``npmrc``: the user's own, if any.
    ``environment``: asked for proxies. ``allow``: what runs may reach, in builder.toml and in the policy.
    """

    directory: Path
    config_dir: Path
    state: State
    base: BaseReference
    probe: HostProbe | None
    protection: Secret | Protection | None  # None: each key is there already (see missing_keys)
    now: datetime
    npmrc: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    roles: tuple[Role, ...] = ROLES
    allow: tuple[NetworkPeer, ...] = ()
    image_name: str = "team/agents"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A thing that this host cannot enforce, and why it is accepted here."""

    what: LaunchReason
    why: str


@dataclass(frozen=True, slots=True)
class Initialised:
    """What was written, and what was there already and is kept as it is.

    ``entries``: what a policy that was kept needs to believe the keys that are in place.
    ``unaccepted``: why the marks of this state refuse the policy; empty where they do not.
    ``unlisted``, ``beyond``: what was to be allowed and is not by a builder.toml, or a policy, that was kept.
    """

    written: tuple[Path, ...]
    kept: tuple[Path, ...]
    mode: Mode
    mode_reason: str
    acceptances: tuple[Acceptance, ...]
    entries: tuple[str, ...] = ()
    unaccepted: str = ""
    unlisted: tuple[NetworkPeer, ...] = ()
    beyond: tuple[NetworkPeer, ...] = ()


def init(request: InitRequest) -> Initialised:
    """Write what is missing; nothing is ever overwritten.

    Raises UsageError when the policy would lie under builder.toml's folder, StateError when the disk
    does not take a file.
    """
    _check_apart(request)
    for folder in (request.directory, request.config_dir, request.config_dir / KEYS):
        _make_folder(folder)
    mode, why = choose_mode(request.probe)
    accepted = choose_acceptances(request.probe)
    written: list[Path] = []
    kept: list[Path] = []
    _keys(request, written, kept)
    texts = (
        (request.config_dir / POLICY_NAME, _policy_text(request, mode, why, accepted), 0o600),
        (request.config_dir / SETTINGS_NAME, _settings_text(request), 0o600),
        (request.directory / CONFIG_NAME, _builder_text(request), 0o644),
    )
    for path, text, file_mode in texts:
        if path.exists() or path.is_symlink():
            kept.append(path)
        else:
            replace_file(path, text.encode(), file_mode)
            written.append(path)
    policy = load_policy(request.config_dir / POLICY_NAME, beside=request.directory)
    if not request.state.marks.exists():
        pin_marks(request.state.marks, policy)
        written.append(request.state.marks)
    entries = tuple(
        _trust_entry(request, role) for role in request.roles if not _believed(policy, request, role)
    )
    unaccepted = _unaccepted(request.state.marks, policy)
    return Initialised(
        tuple(written),
        tuple(kept),
        policy.mode,
        why,
        accepted,
        entries,
        unaccepted,
        unlisted=_unlisted(request),
        beyond=_without(request.allow, policy.network),
    )


def _unlisted(request: InitRequest) -> tuple[NetworkPeer, ...]:
    if not request.allow:
        return ()
    return _without(request.allow, open_project(request.directory / CONFIG_NAME).config.run.allow)


def _without(asked: tuple[NetworkPeer, ...], there: tuple[NetworkPeer, ...]) -> tuple[NetworkPeer, ...]:
    return tuple(peer for peer in asked if peer not in there)


def _unaccepted(marks: Path, policy: Policy) -> str:
    """A policy beside the one that this state knows is not taken in silence: the operator pins it."""
    try:
        check_marks(read_marks(marks), policy)
    except (StateError, VerifyFailed) as why:
        return why.what
    return ""


def choose_mode(probe: HostProbe | None) -> tuple[Mode, str]:
    """Required, unless this host cannot have it; and the reason in a sentence."""
    if probe is None:
        return Mode.REQUIRED, "no engine was probed; builder doctor tells what this host can do"
    failed = [line for line in probe.lines if line.state is ProbeState.NOT_HELD]
    if failed:
        said = "; ".join(f"{line.detail} ({line.name})" for line in failed)
        return Mode.DEVELOPMENT, f"required mode would refuse this engine: {said}"
    return (
        Mode.REQUIRED,
        "everything that required mode asks for was proved on this host, or is accepted below",
    )


def choose_acceptances(probe: HostProbe | None) -> tuple[Acceptance, ...]:
    """One acceptance for each thing that this host cannot enforce and that a policy may accept by name."""
    if probe is None:
        return ()
    reasons: dict[LaunchReason, list[str]] = {}
    lines = [line for line in probe.lines if line.state is ProbeState.ACCEPTABLE]
    missing = [line.name.value for line in lines if line.reason is LaunchReason.LIMITS_NOT_ENFORCED]
    if missing:
        # Three lines of figures say less than one sentence; builder doctor has them.
        said = f"a container that asked for them had none: {', '.join(missing)}"
        reasons[LaunchReason.LIMITS_NOT_ENFORCED] = [said]
    for line in lines:
        if line.reason is not LaunchReason.LIMITS_NOT_ENFORCED:
            reasons.setdefault(line.reason, []).append(f"{line.detail} ({line.name})")
    who = "this user" if probe.facts.rootless else "root"
    reasons.setdefault(LaunchReason.KEYS_READABLE, []).append(
        f"the engine runs as {who}, who can read the keys; keep them elsewhere to do without this"
    )
    return tuple(
        Acceptance(what, "; ".join(said)[:500])
        for what, said in sorted(reasons.items(), key=lambda item: item[0].value)
    )


def find_ca_bundle() -> Path | None:
    """The bundle that this host's package clients trust, an operator's own CA included."""
    return next((path for path in CA_BUNDLES if path.is_file()), None)


def _check_apart(request: InitRequest) -> None:
    folder, config = request.directory.resolve(), request.config_dir.resolve()
    if config.is_relative_to(folder):
        raise UsageError(
            "the policy would lie under the folder of builder.toml: an image cannot approve itself",
            where=str(config),
            hint="run builder init in the folder of a project, or give --config-dir another place",
        )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as broken:
        raise StateError(f"cannot be made: {broken.strerror}", where=str(folder)) from None


def missing_keys(config_dir: Path, roles: Sequence[Role]) -> bool:
    """Whether a key has to be made, and so a passphrase is needed."""
    return not all(_is_there(config_dir, role) for role in roles)


def _is_there(config_dir: Path, role: Role) -> bool:
    return any((config_dir / KEYS / f"{role}.{end}").exists() for end in ("key", "pub"))


def _keys(request: InitRequest, written: list[Path], kept: list[Path]) -> None:
    for role in request.roles:
        private = request.config_dir / KEYS / f"{role}.key"
        public = request.config_dir / KEYS / f"{role}.pub"
        if _is_there(request.config_dir, role):
            kept.extend(path for path in (private, public) if path.exists())
        elif request.protection is None:
            raise UsageError("a role key is to be made without a passphrase", where=str(private))
        else:
            create_key_pair(private, public, request.protection)
            written.extend((private, public))


def _policy_text(request: InitRequest, mode: Mode, why: str, accepted: tuple[Acceptance, ...]) -> str:
    until = _until(request)
    listed = "".join(f"    {{ what = {_quoted(one.what)}, why = {_quoted(one.why)} }},\n" for one in accepted)
    trust = "".join(_trust_entry(request, role) for role in request.roles)
    return POLICY_TOML.format(
        valid_until=until,
        mode=mode,
        mode_reason=_comment(why),
        accept=f"[\n{listed}]" if listed else "[]",
        bases=_quoted(str(request.base.digest)) if request.base.digest else "",
        network=_peers(request),
        trust=trust,
    )


def _trust_entry(request: InitRequest, role: Role) -> str:
    return TRUST_TOML.format(
        role=role, key=f"{KEYS}/{role}.pub", id=uuid.uuid4().urn, not_after=_until(request)
    )


def _believed(policy: Policy, request: InitRequest, role: Role) -> bool:
    """Whether the policy trusts the key that is in place: after a rotation it still trusts the one before."""
    public = request.config_dir / KEYS / f"{role}.pub"
    try:
        key = load_public_key(read_small(public, MAX_KEY_BYTES), str(public))
    except OSError:  # its public half is elsewhere
        return any(entry.role is role for entry in policy.trust)
    return any(entry.role is role and entry.who == key.fingerprint for entry in policy.trust)


def _until(request: InitRequest) -> str:
    return (request.now.astimezone(UTC) + VALID_FOR).strftime("%Y-%m-%dT%H:%M:%SZ")


def _settings_text(request: InitRequest) -> str:
    bundle = find_ca_bundle()
    engine = request.probe.facts.product if request.probe else None
    return SETTINGS_TOML.format(
        engine=f"engine = {_quoted(engine)}" if engine else '# engine = "docker"',
        ca_bundle=f"ca_bundle = {_quoted(str(bundle))}" if bundle else '# ca_bundle = "/path/to/ca.pem"',
        npmrc=f"npmrc = {_quoted(str(request.npmrc))}" if request.npmrc else '# npmrc = "/home/me/.npmrc"',
        proxy=_proxy_line(request.environment),
    )


def _proxy_line(environment: Mapping[str, str]) -> str:
    """The proxies of this host's clients, where they hold no login; nobody asks the environment later."""
    given = {
        key: environment.get(f"{key}_proxy") or environment.get(f"{key.upper()}_PROXY") for key in PROXIES
    }
    if not any(given.values()):
        return '# proxy = { https = "http://HOST:PORT", http = "http://HOST:PORT", no_proxy = [".DOMAIN"] }'
    names = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    bypass = [name.strip() for name in names.split(",") if name.strip()]
    pairs = [f"{key} = {_quoted(value)}" for key, value in given.items() if value]
    line = f"proxy = {{ {', '.join([*pairs, f'no_proxy = {json.dumps(bypass)}'])} }}"
    try:
        parse_settings(f"schema = 1\n{line}", where=SETTINGS_NAME)
    except (UsageError, CredentialFound):  # a login belongs into a file that nobody else can read
        return '# proxy_file = "/FILE"  # the environment has a proxy; https = "…" in that file, chmod 600'
    return line


def _builder_text(request: InitRequest) -> str:
    text = BUILDER_TOML.format(
        name=_quoted(request.image_name),
        base=_quoted(str(request.base)),
        allow=_peers(request),
        reach="and nothing else" if request.allow else "no network; to let an agent reach its model",
    )
    parse_config(text, where=CONFIG_NAME)  # what we write must be what we read
    return text


def _peers(request: InitRequest) -> str:
    return f"[{', '.join(_quoted(str(peer)) for peer in request.allow)}]"


def _quoted(text: str) -> str:
    """A TOML basic string: JSON's escapes are a part of TOML's."""
    return json.dumps(text).replace("\x7f", "\\u007f")


def _comment(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
