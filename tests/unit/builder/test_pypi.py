"""Python packages: nothing that the container says is believed. Archives: nothing is unpacked unread."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backend.commands import Feed
from backend.runner import Ending, Outcome
from builder.daily.updating import parse_moves, pin_names
from builder.resolve.archive import lock_archives
from builder.resolve.exchange import Resolver, Secrets
from builder.resolve.freshness import check_lock
from builder.resolve.newest import Standing
from builder.resolve.pypi_job import PypiFetch, PypiJob, Target, perform_pypi
from builder.resolve.pypi_making import Known, PypiPart, fetch_wheels, locked_wheels, make_pypi
from builder.resolve.pypi_newest import newest_of_pypi
from builder.resolve.pypi_tree import WheelChoice
from builder.resolve.python import Python
from builder.resolve.release_age import AgeGate
from builder.resolve.wheel_vouching import WheelTrust
from builder.script_check import require_own_commands
from builder.storage.store import ContentStore
from images.additions import ArchivePin
from images.attestation import Attestation
from images.config import ImageConfig, parse_config
from images.digests import Digest, Integrity
from images.errors import BuilderError, ExitCode, HostError, NetworkFailed, PinError, UsageError
from images.key import content_key
from images.lock import Artifact, Authentication, Lock
from images.lockfile import lock_bytes, parse_lock
from images.oci import Platform
from provenance.publishers import Publishers
from provenance.sigstore_root import read_sigstore_root
from tests.fakes.audited import honest
from tests.fakes.locks import AMD64, BUILDER_TOML, make_added_lock, make_lock
from tests.fakes.registry import tar
from tests.fakes.sigstores import EXPECTED, ISSUER, PUBLISHED, Sigstore, Who, pypi_document, statement
from tests.fakes.wheels import make_wheel

PYTHON = Python("3.11", "2.36")
TOML = BUILDER_TOML.replace(
    "[run]",
    '[toolchain]\npypi = { quick = "0.9" }\n[mcp]\nlook = { pypi = "mcp-look", version = "1.0" }\n[run]',
)
WHEELS = {
    "quick-0.9-py3-none-any.whl": make_wheel(
        "quick", "0.9", {"quick.py": b""}, entry_points="[console_scripts]\nquick = quick:main\n"
    ),
    "mcp_look-1.0-py3-none-any.whl": make_wheel(
        "mcp-look",
        "1.0",
        {"mcp_look.py": b""},
        requires=("anyio",),
        entry_points="[console_scripts]\nmcp-look = mcp_look:main\n",
    ),
    "anyio-4.0-py3-none-any.whl": make_wheel("anyio", "4.0", {"anyio.py": b""}),
}
TREES = {"quick": ["quick"], "mcp-look": ["anyio", "mcp_look"]}


@dataclass
class FakeIndex:
    """Answers as the container does; a test may change any answer."""

    wheels: dict[str, bytes] = field(default_factory=lambda: dict(WHEELS))
    versions: dict[str, str] = field(default_factory=dict)
    yanked: tuple[str, ...] = ()
    error: dict[str, str] | None = None
    extra: tuple[str, bytes] | None = None
    gone: tuple[str, ...] = ()
    came: str = "2026-01-01T00:00:00Z"
    change: Callable[[dict[str, Any]], object] = lambda _: None
    jobs: list[dict[str, Any]] = field(default_factory=list)
    statements: dict[str, object] = field(default_factory=dict)  # by file name; else none is named

    def __call__(self, job: bytes, result: Path, _: Callable[[bytes], None], _feed: Feed) -> Outcome:
        with tarfile.open(fileobj=io.BytesIO(job)) as archive:
            member = archive.extractfile("job.json")
            assert member is not None
            asked = json.load(member)["pypi"]
        self.jobs.append(asked)
        files: list[tuple[str, bytes]] = []
        document: dict[str, Any] = {"schema": 1, "error": self.error, "yanked": [], "newest": []}
        if self.error is None:
            for number, item in enumerate(asked["resolve"]):
                files.append((f"pylocks/{number}.toml", self.pylock(item["name"])))
                document["yanked"].append(list(self.yanked))
            document["newest"] = [self.newest(item) for item in asked["newest"]]
            for number, item in enumerate(asked["fetch"]):
                files.append((f"wheels/{number}.whl", self.wheels[item["filename"]]))
            if asked["statements"]:
                answers = [self.statements.get(item["filename"], {}) for item in asked["statements"]]
                files.append(("statements.json", json.dumps(answers).encode()))
        self.change(document)
        if self.extra:
            files.append(self.extra)
        files.append(("result.json", json.dumps(document).encode()))
        with tarfile.open(result, "w") as out:
            for name, content in files:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                out.addfile(info, io.BytesIO(content))
        return Outcome(ending=Ending.EXITED, exit_code=0)

    def pylock(self, package: str) -> bytes:
        text = 'lock-version = "1.0"\n'
        for start in TREES[package]:
            filename = next(name for name in WHEELS if name.startswith(f"{start}-"))
            name, version = filename.split("-")[:2]
            sha256 = hashlib.sha256(WHEELS[filename]).hexdigest()
            text += (
                f'[[packages]]\nname = "{name.replace("_", "-")}"\nversion = "{version}"\n'
                f'wheels = [{{ url = "https://x.test/{filename}", upload-time = {self.came}, '
                f'hashes = {{ sha256 = "{sha256}" }} }}]\n'
            )
        return text.encode()

    def newest(self, item: dict[str, Any]) -> dict[str, Any]:
        def one(version: str, yanked: bool) -> dict[str, Any]:
            return {"versions": [{"version": version, "deprecated": yanked}]}

        pinned = one(item["pinned"], bool(self.yanked))
        return {
            "found": one(self.versions.get(item["name"], item["pinned"]), False),
            "pinned": {"code": "ETARGET"} if item["name"] in self.gone else pinned,
        }


@dataclass
class Bench:
    """An index, a store, and what is made of a configuration."""

    root: Path
    index: FakeIndex = field(default_factory=FakeIndex)

    @property
    def store(self) -> ContentStore:
        return ContentStore(self.root / "store")

    def resolver(self) -> Resolver:
        return Resolver(
            run=self.index, secrets=Secrets(), store=self.store, staging=self.root, on_progress=lambda _: None
        )

    def make(self, toml: str = TOML, **known: Any) -> PypiPart:
        config = parse_config(toml, where="builder.toml")
        given = {"python_for": lambda *_: PYTHON, **known}
        return make_pypi(config, Known(**given), self.resolver())

    def refused(self, **known: Any) -> BuilderError:
        with pytest.raises(BuilderError) as found:
            self.make(**known)
        assert found.value.hint
        return found.value


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def config(toml: str = TOML) -> ImageConfig:
    return parse_config(toml, where="builder.toml")


def test_servers_and_tools_with_their_wheels(bench: Bench) -> None:
    part = bench.make()
    (server,), (tool,) = part.servers, part.tools
    assert (server.name, server.package, server.version) == ("look", "mcp-look", "1.0")
    assert server.trees[0].wheels == (
        "wheel:anyio-4.0-py3-none-any.whl",
        "wheel:mcp_look-1.0-py3-none-any.whl",
    )
    assert (tool.trees[0].python, tool.trees[0].glibc) == ("3.11", "2.36")
    found = {one.name: one for one in part.artifacts}
    assert found["anyio"].parents == ("wheel:mcp_look-1.0-py3-none-any.whl",)
    assert found["mcp-look"].parents == ("mcp.look",)
    assert found["quick"].parents == ("toolchain.pypi.quick",)
    assert found["quick"].bins == (("quick", "quick:main"),)
    assert {one.authenticated for one in part.artifacts} == {Authentication.TOFU}
    assert {one.registry for one in part.artifacts} == {"pypi"}
    assert all(bench.store.intact(one.integrity) for one in part.artifacts)
    asked = bench.index.jobs[0]["resolve"]
    assert {(item["python"], item["platform"]) for item in asked} == {("3.11", "x86_64-manylinux_2_36")}


def test_nothing_is_asked_where_nothing_is_from_pypi(bench: Bench) -> None:
    def nobody(place: str, platform: Platform) -> Python:
        raise AssertionError(place)

    assert bench.make(BUILDER_TOML, python_for=nobody) == PypiPart()
    assert bench.index.jobs == []


def test_what_has_the_same_pin_and_python_is_not_resolved_again(bench: Bench) -> None:
    part = bench.make()
    lock = replace(
        make_lock(),
        pypi_mcp=part.servers,
        pypi_tools=part.tools,
        artifacts=(*make_lock().artifacts, *part.artifacts),
    )
    bench.index.jobs.clear()
    assert bench.make(previous=lock) == part
    assert bench.index.jobs == []
    bench.make(previous=lock, renew=frozenset({"mcp.look"}))
    assert [item["name"] for item in bench.index.jobs[0]["resolve"]] == ["mcp-look"]
    bench.index.jobs.clear()
    newer = {"python_for": lambda *_: Python("3.12", "2.36")}
    bench.make(previous=lock, **newer)
    assert len(bench.index.jobs[0]["resolve"]) == 2
    for artifact in part.artifacts:
        bench.store.path_of(artifact.integrity).unlink()
    assert fetch_wheels(locked_wheels(lock), bench.resolver()) == 3
    assert fetch_wheels(locked_wheels(lock), bench.resolver()) == 0


@pytest.mark.parametrize(
    ("code", "kind", "exit_code", "said"),
    [
        ("E404", PinError, ExitCode.PIN, "is not in the registry"),
        ("ETARGET", PinError, ExitCode.PIN, "is not in the registry"),
        ("ENOWHEEL", PinError, ExitCode.PIN, "has no wheel for the image's python on linux/amd64"),
        ("ECONFLICT", PinError, ExitCode.PIN, "no versions that go together"),
        ("EINTEGRITY", PinError, ExitCode.PIN, "not those that were pinned"),
        ("E401", NetworkFailed, ExitCode.NETWORK, "the pypi registry refuses these credentials"),
        ("E429", NetworkFailed, ExitCode.NETWORK, "asks us to slow down"),
        ("E503", NetworkFailed, ExitCode.NETWORK, "failed"),
        ("ENOTFOUND", NetworkFailed, ExitCode.NETWORK, "cannot be reached"),
        ("CERT_UNTRUSTED", NetworkFailed, ExitCode.NETWORK, "certificate"),
        ("EUV", HostError, ExitCode.HOST, "uv did not work"),
    ],
)
def test_each_way_in_which_uv_fails(
    bench: Bench, code: str, kind: type[BuilderError], exit_code: ExitCode, said: str
) -> None:
    label = "toolchain.pypi.quick = 0.9 on linux/amd64"
    bench.index.error = {"code": code, "item": label, "spec": "quick==0.9"}
    refused = bench.refused()
    assert isinstance(refused, kind)
    assert refused.code == exit_code
    assert said in refused.what
    if code in ("E404", "ETARGET"):
        assert refused.hint == "move it to the newest: builder lock --upgrade toolchain.pypi.quick"


@pytest.mark.parametrize(("item", "spec"), [("", "anyio==4.0"), ("anyio-4.0-py3-none-any.whl", "")])
def test_a_locked_wheel_that_is_gone_is_named_with_whose_it_is(bench: Bench, item: str, spec: str) -> None:
    part = bench.make()
    artifacts = (*make_lock().artifacts, *part.artifacts)
    lock = replace(make_lock(), pypi_mcp=part.servers, pypi_tools=part.tools, artifacts=artifacts)
    anyio = next(one for one in part.artifacts if one.name == "anyio")
    bench.store.path_of(anyio.integrity).unlink()
    bench.index.error = {"code": "ETARGET", "item": item, "spec": spec}
    refused = bench.refused(previous=lock)
    assert refused.code == ExitCode.PIN
    assert isinstance(refused, PinError)
    assert refused.pin == "mcp.look"
    assert refused.hint == "move it to the newest: builder lock --upgrade mcp.look"


def test_a_yanked_pin_is_refused_and_a_yanked_dependency_is_uvs_affair(bench: Bench) -> None:
    bench.index.yanked = ("anyio==4.0",)
    bench.make()
    bench.index.yanked = ("quick==0.9",)
    refused = bench.refused()
    assert "quick 0.9 is yanked" in refused.what
    assert "--upgrade toolchain.pypi.quick" in refused.hint


def test_other_bytes_than_the_hash_says_are_not_stored(bench: Bench) -> None:
    bench.index.wheels["quick-0.9-py3-none-any.whl"] = make_wheel("quick", "0.9", {"evil.py": b""})
    assert "the bytes hash to" in bench.refused().what
    assert not bench.store.holds(
        Integrity("sha256", hashlib.sha256(WHEELS["quick-0.9-py3-none-any.whl"]).hexdigest())
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.pop("yanked"),
        lambda document: document["yanked"].append([]),
        lambda document: document.pop("newest"),
    ],
)
def test_an_answer_of_another_form_ends_the_job(
    bench: Bench, change: Callable[[dict[str, Any]], object]
) -> None:
    bench.index.change = change
    assert isinstance(bench.refused(), HostError)


def test_more_than_was_asked_ends_the_job(bench: Bench) -> None:
    bench.index.extra = ("wheels/9.whl", b"x")
    assert "more than was asked" in bench.refused().what
    with pytest.raises(HostError, match="more than was asked"):
        perform_pypi(PypiJob(), bench.resolver())


def test_what_is_too_young_is_refused(bench: Bench) -> None:
    now = datetime(2026, 1, 3, tzinfo=UTC)
    gate = AgeGate(timedelta(days=7), now, frozenset({"quick@0.9"}))
    refused = bench.refused(gate=gate)
    assert "anyio@4.0 is 2 days old" in refused.what
    assert "quick@0.9" not in refused.what
    asked = bench.index.jobs[0]
    assert asked["before"] == "2025-12-27T00:00:00+00:00"
    assert asked["excepted"] == ["quick"]
    bench.make(gate=AgeGate(timedelta(days=1), now))


def test_what_is_newer(bench: Bench) -> None:
    bench.index.versions = {"quick": "0.10", "mcp-look": "1.0"}
    names = frozenset(pin_names(config()))
    found = {one.name: one for one in newest_of_pypi(config(), {AMD64: PYTHON}, bench.resolver(), names)}
    assert found["toolchain.pypi.quick"].target == "0.10"
    assert found["mcp.look"].standing is Standing.CURRENT
    assert found["mcp.look"].place == "mcp.look.version"
    bench.index.versions = {"quick": "0.8", "mcp-look": "2.0rc1"}
    found = {one.name: one for one in newest_of_pypi(config(), {AMD64: PYTHON}, bench.resolver(), names)}
    assert found["toolchain.pypi.quick"].standing is Standing.AHEAD
    assert found["mcp.look"].standing is Standing.UNKNOWN
    bench.index.gone, bench.index.yanked = ("quick",), ("mcp-look==1.0",)
    found = {one.name: one for one in newest_of_pypi(config(), {AMD64: PYTHON}, bench.resolver(), names)}
    assert found["toolchain.pypi.quick"].standing is Standing.GONE
    assert found["mcp.look"].deprecated
    bench.index.jobs.clear()
    unknown = newest_of_pypi(config(), {}, bench.resolver(), names)
    assert {one.standing for one in unknown} == {Standing.UNKNOWN}
    assert bench.index.jobs == []


def test_moves_of_pypi_pins_take_pypi_versions() -> None:
    names = pin_names(config())
    assert {"mcp.look", "toolchain.pypi.quick"} <= set(names)
    (move,) = parse_moves(["toolchain.pypi.quick=1.0rc1"], config())
    assert move.target == "1.0rc1"
    with pytest.raises(UsageError, match="is a range"):
        parse_moves(["mcp.look=>=1"], config())


def test_a_lock_is_stale_when_a_pin_of_these_kinds_changed() -> None:
    lock = make_added_lock()

    def stale(text: str) -> set[str]:
        config = parse_config(BUILDER_TOML.replace("[run]", f"{text}\n[run]"), where="builder.toml")
        recipe = lock.recipe
        return {
            one for one in check_lock(config, lock, recipe) if one.startswith(("mcp.look", "tool", "arch"))
        }

    kit = lock.artifact("archive:kit").integrity.hex
    tools = '[toolchain]\npypi = { quick = "0.9" }\n'
    mcp = (
        '[mcp]\nlook = { pypi = "mcp-server-look", version = "2026.10.24", '
        'args = ["--quiet", "it\'s"], env = ["LOOK_AT"] }\n'
    )
    archives = f'[archives]\nkit = {{ sha256 = "{kit}", bins = {{ kit = "kit-1.2/bin/kit" }} }}\n'
    fresh = tools + mcp + archives
    assert stale(fresh) == set()
    assert stale(fresh.replace('"0.9"', '"0.10"')) == {
        "toolchain.pypi.quick: 0.9 is locked, 0.10 is asked for"
    }
    assert stale(fresh.replace('pypi = "mcp', 'npm = "mcp')) == {
        "mcp.look: pypi:mcp-server-look@2026.10.24 is locked, mcp-server-look@2026.10.24 is asked for"
    }
    (said,) = stale(fresh.replace("bin/kit", "bin/kat"))
    assert said.startswith(f"archives.kit: sha256:{kit}, kit = kit-1.2/bin/kit is locked")
    (said,) = stale(tools + mcp)
    assert said.endswith("is locked, nothing is asked for")


def test_a_build_holds_commands_and_zips_against_the_lock(tmp_path: Path) -> None:
    """A lock that somebody else wrote: it is lawful, and says other things than wheels and archive do."""
    made = honest(tmp_path, lock=make_added_lock())
    lock, store = made.tiny.lock, made.tiny.store
    kept = {one.id: one for one in lock.artifacts}
    with pytest.raises(PinError, match="not those in the wheel"):
        require_own_commands(lock, store)  # the fake lock names commands that its fake wheels do not have
    quick = next(one for one in lock.artifacts if one.name == "quick")
    look = next(one for one in lock.artifacts if one.name == "mcp-server-look")
    own = {quick.id: (("quick", "bin/quick"), ("quick.sh", "python bin/quick.sh")), look.id: ()}

    def with_bins(**more: tuple[tuple[str, str], ...]) -> Lock:
        bins = own | {kept[f"archive:{name}"].id: value for name, value in more.items()}
        return replace(
            lock, artifacts=tuple(replace(one, bins=bins.get(one.id, one.bins)) for one in lock.artifacts)
        )

    require_own_commands(with_bins(), store)
    with pytest.raises(PinError, match="is not executable in the archive"):
        require_own_commands(with_bins(kit=(("kit", "kit-1.2/share/notes"),)), store)
    with pytest.raises(PinError, match="has no file"):
        require_own_commands(with_bins(kit=(("kit", "kit-1.2/bin/other"),)), store)
    evil = make_wheel("quick", "0.9", {"../../evil": b""})
    integrity = Integrity("sha256", hashlib.sha256(evil).hexdigest())
    store.put(io.BytesIO(evil), integrity, what="evil", limit=1 << 20)
    lawful = with_bins()
    hostile = tuple(
        replace(one, integrity=integrity) if one.id == quick.id else one for one in lawful.artifacts
    )
    with pytest.raises(PinError, match="a path that leaves it"):
        require_own_commands(replace(lawful, artifacts=hostile), store)


# --- archives


def pack(
    *members: tuple[str, bytes, int], mode: str = "w:gz", odd: tuple[tarfile.TarInfo, ...] = ()
) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content, bits in members:
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), bits
            archive.addfile(info, io.BytesIO(content))
        for info in odd:
            archive.addfile(info)
    return out.getvalue()


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


TOOL = ("kit/bin/kit", b"#!/bin/sh\n", 0o755)


def locked(store: ContentStore, raw: bytes, *bins: tuple[str, str]) -> tuple[str, ...]:
    sha256 = hashlib.sha256(raw).hexdigest()
    store.put(io.BytesIO(raw), Integrity("sha256", sha256), what="kit", limit=1 << 20)
    pin = ArchivePin("kit", Digest(f"sha256:{sha256}"), bins)
    (archive,), (artifact,) = lock_archives((pin,), store, (AMD64,))
    assert archive.artifact == artifact.id == "archive:kit"
    assert artifact.authenticated is Authentication.LOCAL
    assert artifact.size == len(raw)
    return artifact.parents


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_an_archive_by_its_hash(tmp_path: Path, mode: str) -> None:
    store = ContentStore(tmp_path)
    raw = pack(TOOL, ("./kit/notes", b"x", 0o600), mode=mode, odd=(special("kit/empty", tarfile.DIRTYPE),))
    assert locked(store, raw, ("kit", "kit/bin/kit")) == ("archives.kit",)


def test_an_archive_that_the_store_lacks(tmp_path: Path) -> None:
    pin = ArchivePin("kit", Digest.of(b"nothing"))
    with pytest.raises(PinError) as refused:
        lock_archives((pin,), ContentStore(tmp_path), (AMD64,))
    assert refused.value.code == ExitCode.PIN
    assert refused.value.hint == "builder store add FILE"
    assert str(Digest.of(b"nothing")) in refused.value.what


HOSTILE: list[tuple[bytes, str]] = [
    (pack(("../evil", b"", 0o644)), "a path that leaves it"),
    (pack(("/etc/evil", b"", 0o644)), "a path that leaves it"),
    (pack(("kit/./evil", b"", 0o644)), "a path that leaves it"),
    (pack(("kit\\evil", b"", 0o644)), "not plain text"),
    (pack(("kit/\x1b[2J", b"", 0o644)), "not plain text"),
    (pack(TOOL, odd=(special("kit/x", tarfile.SYMTYPE, "/etc/passwd"),)), "a link or something else"),
    (pack(TOOL, odd=(special("kit/x", tarfile.LNKTYPE, "kit/bin/kit"),)), "a link or something else"),
    (pack(TOOL, odd=(special("kit/x", tarfile.FIFOTYPE),)), "a link or something else"),
    (pack(TOOL, odd=(special("kit/x", tarfile.CHRTYPE),)), "a link or something else"),
    (pack(TOOL, TOOL), "twice"),
    (pack(TOOL, ("kit/bin/KIT", b"", 0o644)), "letter case alone"),
    (pack(TOOL, ("kit/bin", b"", 0o644)), "a file and a directory"),
    (pack(TOOL, odd=(special("kit/bin/kit", tarfile.DIRTYPE),)), "a file and a directory"),
    (pack(), "holds no file"),
    (pack(TOOL)[:-20], "no whole tar"),
    (pack(TOOL)[:40] + b"\0" * 40, "no whole tar"),
    (b"not an archive at all", "no whole tar"),
    (b"PK\x03\x04 and so on", "is a zip"),
    (b"\xfd7zXZ\0 and so on", "compressed with xz"),
    (b"BZh9 and so on", "compressed with bzip2"),
    (b"\x28\xb5\x2f\xfd and so on", "compressed with zstd"),
]


@pytest.mark.parametrize(("raw", "said"), HOSTILE, ids=[f"{n}-{said}" for n, (_, said) in enumerate(HOSTILE)])
def test_a_hostile_archive_is_refused_by_name(tmp_path: Path, raw: bytes, said: str) -> None:
    with pytest.raises(PinError) as refused:
        locked(ContentStore(tmp_path), raw)
    assert said in refused.value.what
    assert "archives.kit" in refused.value.what
    assert "builder store add FILE" in refused.value.hint


@pytest.mark.parametrize(
    ("path", "said"), [("kit/bin/other", "has no file"), ("kit/notes", "is not executable")]
)
def test_a_command_must_be_a_program_of_the_archive(tmp_path: Path, path: str, said: str) -> None:
    with pytest.raises(PinError) as refused:
        locked(ContentStore(tmp_path), pack(TOOL, ("kit/notes", b"", 0o644)), ("kit", path))
    assert said in refused.value.what
    assert "archives.kit.bins.kit" in refused.value.what


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builder.resolve.archive.MAX_UNPACKED", 100_000)
    with pytest.raises(PinError, match="no whole tar"):
        locked(ContentStore(tmp_path), pack(("zeros", bytes(1_000_000), 0o644)))


# -- statements of publishers

SIGSTORE = Sigstore()
ROOT = read_sigstore_root(SIGSTORE.trusted_root(), "root.json")
ANYIO = "anyio-4.0-py3-none-any.whl"
EXPECTS_ANYIO = WheelTrust(publishers=Publishers(ROOT, {"pypi:anyio": EXPECTED}))
LOOKS = WheelTrust(publishers=Publishers(ROOT))


def offered(filename: str, raw: bytes, who: Who | None = None) -> dict[str, object]:
    """What the index has of the publisher of this file."""
    digest = {"sha256": hashlib.sha256(raw).hexdigest()}
    payload = statement(subject=[{"name": filename, "digest": digest}], predicateType=PUBLISHED)
    return {"document": json.dumps(pypi_document(SIGSTORE.bundle(payload, who)))}


def stating(bench: Bench, *filenames: str) -> None:
    bench.index.statements |= {name: offered(name, WHEELS[name]) for name in filenames}


def wheels_of(part: PypiPart) -> dict[str, Artifact]:
    return {one.filename: one for one in part.artifacts}


def whole(part: PypiPart) -> Lock:
    """A lock with this part."""
    artifacts = sorted((*make_lock().artifacts, *part.artifacts), key=lambda one: one.id)
    return replace(make_lock(), pypi_mcp=part.servers, pypi_tools=part.tools, artifacts=tuple(artifacts))


def asked_about(bench: Bench) -> list[list[str]]:
    """Of which wheels each run of the container was asked for the publisher."""
    return [[item["filename"] for item in job["statements"]] for job in bench.index.jobs]


def test_the_expected_publisher_of_a_wheel_is_in_the_lock(bench: Bench) -> None:
    stating(bench, ANYIO)
    lock = whole(bench.make(trust=EXPECTS_ANYIO))
    anyio = lock.artifact(f"wheel:{ANYIO}")
    assert (anyio.authenticated, anyio.signer) == (Authentication.PYPI_ATTESTED, Who().identity)
    assert anyio.attestation is not None
    assert anyio.attestation.bundle
    assert parse_lock(lock_bytes(lock)) == lock
    assert asked_about(bench)[-1] == sorted(WHEELS)
    # Known, it is not asked about again, until it no longer holds here.
    for trust, asked in ((EXPECTS_ANYIO, []), (LOOKS, [[ANYIO]])):
        bench.index.jobs.clear()
        again = wheels_of(bench.make(previous=lock, trust=trust))[ANYIO]
        assert (again == anyio) is (trust is EXPECTS_ANYIO)
        assert asked_about(bench) == asked
    assert again.attestation == replace(anyio.attestation, bundle="")
    bench.index.jobs.clear()
    again = wheels_of(bench.make(previous=lock))[ANYIO]  # without a root nobody is asked
    assert (again.authenticated, again.attestation, bench.index.jobs) == (Authentication.TOFU, None, [])


def test_an_unexpected_publisher_of_a_wheel_is_named_and_counts_for_nothing(bench: Bench) -> None:
    stating(bench, ANYIO)
    heard: list[str] = []
    found = wheels_of(bench.make(trust=replace(LOOKS, on_note=heard.append)))
    assert {one.authenticated for one in found.values()} == {Authentication.TOFU}
    assert found[ANYIO].attestation == Attestation(Who().identity, ISSUER)
    assert heard == [
        "1 package published by whom nobody expects (publishers in settings.toml), "
        f"which counts for nothing: {ANYIO} by {Who().identity}"
    ]


def test_naming_the_publisher_of_a_wheel_asks_again_for_what_is_locked(bench: Bench) -> None:
    lock = whole(bench.make())
    stating(bench, ANYIO)
    bench.index.jobs.clear()
    again = bench.make(previous=lock, trust=EXPECTS_ANYIO)
    assert wheels_of(again)[ANYIO].authenticated is Authentication.PYPI_ATTESTED
    assert asked_about(bench) == [[ANYIO]]
    assert [job["fetch"] for job in bench.index.jobs] == [[]]
    assert content_key(whole(again), AMD64) == content_key(lock, AMD64)


OTHERS = {
    "issuer is https://other.example": offered(ANYIO, WHEELS[ANYIO], Who(issuer="https://other.example")),
    "a statement about other bytes": offered(ANYIO, b"x"),
    "a statement about 'other-4.0": offered("other-4.0-py3-none-any.whl", WHEELS[ANYIO]),
    "there is no statement of its publisher": {},
    "is of another form": {"document": "[]"},
}


@pytest.mark.parametrize("why", OTHERS)
def test_whoever_expects_the_publisher_of_a_wheel_gets_him_or_nothing(bench: Bench, why: str) -> None:
    bench.index.statements[ANYIO] = OTHERS[why]
    with pytest.raises(PinError) as refused:
        bench.make(trust=EXPECTS_ANYIO)
    assert why in refused.value.what
    assert (refused.value.where, refused.value.pin, refused.value.reason) == (ANYIO, "mcp.look", "integrity")
    heard: list[str] = []
    found = wheels_of(bench.make(trust=replace(LOOKS, on_note=heard.append)))[ANYIO]
    assert found.authenticated is Authentication.TOFU
    assert len(heard) == bool(OTHERS[why])


def test_an_index_that_cannot_tell_the_publisher_is_no_tofu(bench: Bench) -> None:
    bench.index.statements[ANYIO] = {"code": "E503"}
    with pytest.raises(NetworkFailed, match="the pypi registry failed") as refused:
        bench.make(trust=EXPECTS_ANYIO)
    assert refused.value.where == ANYIO
    assert wheels_of(bench.make(trust=LOOKS))[ANYIO].attestation is None
    bench.index.statements[ANYIO] = {"code": "E404"}
    with pytest.raises(PinError, match="there is no statement"):
        bench.make(trust=EXPECTS_ANYIO)


@pytest.mark.parametrize("answer", [b"{}", b"[]", b"[", b"[{}, {}]", b"[1, 2, 3, 4]", b"[" * 100])
def test_answers_about_publishers_of_another_form_are_refused(bench: Bench, answer: bytes) -> None:
    fetches = tuple(PypiFetch(choice(name), Target(PYTHON, AMD64)) for name in WHEELS)

    def run(job: bytes, result: Path, _: Callable[[bytes], None], _feed: Feed) -> Outcome:
        document = json.dumps({"schema": 1, "error": None, "yanked": [], "newest": []}).encode()
        result.write_bytes(tar({"statements.json": answer, "result.json": document}))
        return Outcome(ending=Ending.EXITED, exit_code=0)

    with pytest.raises(HostError, match="answer of another form"):
        perform_pypi(PypiJob(statements=fetches), replace(bench.resolver(), run=run))


def test_answers_that_are_no_offers_are_none(bench: Bench) -> None:
    for answer in (1, [], "x", {"document": 1}, {"code": []}, {"document": None, "code": None}):
        bench.index.statements[ANYIO] = answer
        assert wheels_of(bench.make(trust=LOOKS))[ANYIO].attestation is None


def choice(filename: str) -> WheelChoice:
    name, version = filename.split("-")[:2]
    digest = Integrity("sha256", hashlib.sha256(WHEELS[filename]).hexdigest())
    return WheelChoice(name.replace("_", "-"), version, filename, digest)
