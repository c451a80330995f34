"""Push and pull through the resolver's container: registries of others, and one that does all wrong."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.containers import LoadedImage
from backend.engines.protocol import Engine
from builder.bootstrap import Bootstrapped
from builder.resolve.exchange import Secrets
from builder.state import State
from images.credentials import Secret
from images.digests import Digest
from images.errors import NetworkFailed
from images.oci import MEDIA_MANIFEST
from provenance.bundles import BUNDLE_TYPE
from provenance.layout import open_image, read_index
from provenance.referrers import read_referrers
from tests.fakes.layouts import make_image
from tests.fakes.locks import AMD64
from tests.fakes.proved import make_world
from tests.real.registries import PASSWORD, USER, Running
from tests.real.scripted_registry import Handler, ScriptedRegistry, index_of, scripted_registry
from tests.real.sharing import Desk, at_desk, loaded_resolver, start
from tests.unit.builder.test_sharing import referrer

pytestmark = pytest.mark.real
LOGIN = f"{USER}:{PASSWORD}"


@pytest.fixture(scope="module")
def loaded(engine: Engine, kept_state: State, bootstrapped: Bootstrapped) -> LoadedImage:
    return loaded_resolver(engine, kept_state, bootstrapped)


@pytest.fixture
def desk(engine: Engine, loaded: LoadedImage, tmp_path: Path) -> Iterator[Desk]:
    with at_desk(engine, loaded, tmp_path) as made:
        yield made


@pytest.fixture
def scripted() -> Iterator[ScriptedRegistry]:
    with scripted_registry() as server:
        yield server


# -- registries of others --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["distribution", "debian", "referrers"])
def test_there_and_back_through_a_real_registry(
    desk: Desk, kind: str, pytestconfig: pytest.Config, kept_state: State
) -> None:
    with start(kind, pytestconfig, kept_state, desk.root / "registry") as registry:
        pushed = desk.push(registry.address)
        assert pushed.sent > 0
        assert desk.push(registry.address).sent == 0
        brought = desk.pull(registry.address, "team/agents:1")
    assert (brought.asked, brought.evidence, brought.left) == (desk.image, 4, ())
    theirs, ours = (read_referrers(layout, desk.image) for layout in (desk.world.layout, brought.layout))
    assert {one.manifest for one in (*theirs.bundles, *theirs.locks)} == {
        one.manifest for one in (*ours.bundles, *ours.locks)
    }
    assert desk.arrived(brought).verify().ok
    assert open_image(brought.layout, desk.world.base.digest, AMD64)


def test_a_login_by_tls_and_a_wrong_one(desk: Desk, pytestconfig: pytest.Config, kept_state: State) -> None:
    def secrets(login: str, registry: Running) -> Secrets:
        assert registry.ca is not None
        return Secrets(
            ca_bundle=registry.ca.read_bytes(), logins=((registry.address, Secret(login.encode())),)
        )

    with start("distribution", pytestconfig, kept_state, desk.root / "registry", login=True) as registry:
        right = secrets(LOGIN, registry)
        assert desk.push(registry.address, secrets=right).evidence == 4
        assert desk.pull(registry.address, secrets=right).evidence == 4
        for wrong in (secrets(f"{USER}:dummy-other", registry), secrets("<token>:dummy-token", registry)):
            with pytest.raises(NetworkFailed) as found:
                desk.push(registry.address, secrets=wrong)
            assert found.value.reason == "auth"
        log = registry.log.read_text()
    assert PASSWORD not in log


def test_two_pushers_at_once_lose_nothing_without_the_api(
    desk: Desk, pytestconfig: pytest.Config, kept_state: State
) -> None:
    """Both add to the one index behind the tag; each with evidence that the other lacks."""
    other = Desk(desk.root, make_world(desk.root / "other"), replace(desk.resolver, staging=desk.root / "s2"))
    (desk.root / "s2").mkdir()
    other.world.prove(without=("scan",))
    assert other.image == desk.image
    desk.world.attest()
    with start("distribution", pytestconfig, kept_state, desk.root / "registry") as registry:
        threads = [threading.Thread(target=one.push, args=(registry.address,)) for one in (desk, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        brought = desk.pull(registry.address)
    expected = {
        one.digest
        for world in (desk.world, other.world)
        for one in read_index(world.layout).manifests
        if one.artifact_type
    }
    found = {one.digest for one in read_index(brought.layout).manifests if one.artifact_type}
    assert found == expected


def test_a_large_layer_streams_and_a_killed_push_is_finished_by_the_next(
    desk: Desk, pytestconfig: pytest.Config, kept_state: State
) -> None:
    digest = make_image(desk.world.layout, ({"big": os.urandom(48 << 20)}, {"small": b"x"}))
    world = replace(desk.world, image=open_image(desk.world.layout, digest))
    desk.world = world

    class Enough(Exception):
        pass

    with start("distribution", pytestconfig, kept_state, desk.root / "registry") as registry:

        def broken(job: bytes, result: Path, on_stderr: Any, feed: Any) -> Any:
            def chunks() -> Iterator[bytes]:
                for number, chunk in enumerate(feed.chunks()):
                    if number == 20:
                        raise Enough
                    yield chunk

            changed = replace(feed, chunks=chunks) if feed.size else feed
            return desk.resolver.run(job, result, on_stderr, changed)

        with pytest.raises(Enough):
            desk.push(registry.address, run=broken)
        with pytest.raises(NetworkFailed) as nothing:
            desk.pull(registry.address, "team/agents:1")
        assert nothing.value.reason == "not-found"
        assert 0 < desk.push(registry.address).sent <= 3  # what came whole the first time stays
        assert desk.push(registry.address).sent == 0
        assert desk.pull(registry.address, "team/agents:1").image.digest == digest


# -- one that does everything wrong ----------------------------------------------------------------------


@pytest.mark.parametrize("filters", [True, False])
def test_pages_and_filters_of_the_api(desk: Desk, scripted: ScriptedRegistry, filters: bool) -> None:
    scripted.page, scripted.filters = 1, filters
    desk.push(scripted.address)
    assert not any(
        tag.startswith("sha256-") for tag in scripted.tags
    )  # it knows the API: no stand-in is made
    assert desk.pull(scripted.address).evidence == 4
    asked = [path for path in scripted.paths("GET") if "/referrers/" in path]
    assert len(asked) == 4
    assert any("from=" in path for path in asked)


def test_what_was_pushed_before_it_learned_the_api_is_found(desk: Desk, scripted: ScriptedRegistry) -> None:
    scripted.api = False
    desk.push(scripted.address)
    scripted.api = True
    scripted.instead("GET", "/referrers/", lambda one: one.reply(200, index_of([])))
    assert desk.pull(scripted.address).evidence == 4


def test_a_list_that_lies_about_types_changes_nothing(desk: Desk, scripted: ScriptedRegistry) -> None:
    """Ours under a foreign type, another image's and a nested index under ours."""
    desk.push(scripted.address)
    payload = read_referrers(desk.world.layout, desk.image).bundles[0].data
    foreign = referrer(str(Digest.of(b"another")), payload)
    nested = index_of([])
    for raw in (foreign, nested):
        scripted.manifests[str(Digest.of(raw))] = raw

    def lying(one: Handler) -> bool:
        entries = [entry | {"artifactType": "text/plain"} for entry in one.listed(desk.image)]
        for raw in (foreign, nested):
            entries.append(
                {
                    "mediaType": MEDIA_MANIFEST,
                    "digest": str(Digest.of(raw)),
                    "size": len(raw),
                    "artifactType": BUNDLE_TYPE,
                }
            )
        return one.reply(200, index_of(entries))

    scripted.instead("GET", "/referrers/", lying)
    brought = desk.pull(scripted.address)
    assert brought.evidence == 4
    assert len(brought.left) == 2
    assert any("another image" in line for line in brought.left)


def elsewhere(one: Handler) -> bool:
    link = '<http://192.0.2.1/v2/team/agents/referrers/x>; rel="next"'
    return one.reply(200, index_of([]), link=link)


def another_list(one: Handler) -> bool:
    link = f'</v2/team/agents/referrers/{Digest.of(b"x")}>; rel="next"'
    return one.reply(200, index_of([]), link=link)


def circle(one: Handler) -> bool:
    return one.reply(200, index_of([]), link=f'<{one.path}>; rel="next"')


def endless(one: Handler) -> bool:
    here = one.path.partition("&n=")
    return one.reply(200, index_of([]), link=f'<{here[0]}&n={int(here[2] or 0) + 1}>; rel="next"')


def thousands(one: Handler) -> bool:
    entries = [
        {"mediaType": MEDIA_MANIFEST, "digest": str(Digest.of(str(n).encode())), "size": 9}
        for n in range(1025)
    ]
    return one.reply(200, index_of(entries))


def no_index(one: Handler) -> bool:
    return one.reply(200, b'{"manifests": "none"}')


@pytest.mark.parametrize("lie", [elsewhere, another_list, circle, endless, thousands, no_index])
def test_a_list_of_referrers_that_leads_astray(desk: Desk, scripted: ScriptedRegistry, lie: Any) -> None:
    desk.push(scripted.address)
    scripted.instead("GET", "/referrers/", lie)
    desk.refused(scripted.address, "server")


def test_a_thousand_referrers_of_others_do_not_hide_ours(desk: Desk, scripted: ScriptedRegistry) -> None:
    desk.push(scripted.address)
    for number in range(1000):
        raw = json.dumps(
            {
                "mediaType": MEDIA_MANIFEST,
                "artifactType": "text/plain",
                "n": number,
                "subject": {"digest": desk.image},
            }
        )
        scripted.manifests[str(Digest.of(raw.encode()))] = raw.encode()
    assert desk.pull(scripted.address).evidence == 4


def test_huge_and_missing_manifests_are_left_out(desk: Desk, scripted: ScriptedRegistry) -> None:
    desk.push(scripted.address)
    huge = json.dumps(
        {
            "mediaType": MEDIA_MANIFEST,
            "artifactType": BUNDLE_TYPE,
            "x": "y" * (1 << 20),
            "subject": {"digest": desk.image},
        }
    ).encode()
    scripted.manifests[str(Digest.of(huge))] = huge
    small = {"mediaType": MEDIA_MANIFEST, "size": 100, "artifactType": BUNDLE_TYPE}
    odd = [small | {"digest": str(Digest.of(huge))}, small | {"digest": str(Digest.of(b"gone"))}]
    scripted.instead(
        "GET", "/referrers/", lambda one: one.reply(200, index_of([*one.listed(desk.image), *odd]))
    )
    brought = desk.pull(scripted.address)
    assert (brought.evidence, len(brought.left)) == (4, 2)


@pytest.mark.parametrize("what", ["layer", "referrer"])
def test_bytes_that_are_not_those_of_the_digest(desk: Desk, scripted: ScriptedRegistry, what: str) -> None:
    desk.push(scripted.address)
    layer = desk.world.image.manifest.layers[0].digest
    attached = next(digest for digest, raw in scripted.manifests.items() if b'"subject"' in raw)
    path, right = (
        (f"/blobs/{layer}", scripted.blobs[layer])
        if what == "layer"
        else (f"/manifests/{attached}", scripted.manifests[attached])
    )
    wrong = right[:-1] + bytes([right[-1] ^ 1])
    scripted.instead("GET", path, lambda one: one.reply(200, wrong))
    desk.refused(scripted.address, "wrong-digest")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((401, {}), "auth"),
        ((403, {}), "auth"),
        ((404, {}), "not-found"),
        ((429, {"retry_after": "17"}), "rate-limited"),
        ((503, {}), "server"),
        ((413, {}), "server"),
        ((201, {"docker_content_digest": str(Digest.of(b"other"))}), "wrong-digest"),
    ],
)
def test_each_failure_of_a_push_has_its_reason(
    desk: Desk, scripted: ScriptedRegistry, answer: tuple[int, dict[str, str]], reason: str
) -> None:
    status, headers = answer
    scripted.instead("PUT", "/manifests/sha256:", lambda one: one.reply(status, b"", **headers))
    with pytest.raises(NetworkFailed) as found:
        desk.push(scripted.address)
    assert found.value.reason == reason
    assert not scripted.tags
    if reason == "rate-limited":
        assert "wait 17 seconds" in found.value.hint


def test_an_upload_that_breaks_is_made_again(desk: Desk, scripted: ScriptedRegistry) -> None:
    """Cut off in the middle, then a failing server, then all is well."""
    broken = iter(["cut off", "fails"])

    def fail_twice(one: Handler) -> object:
        how = next(broken, None)
        if how == "cut off":
            one.connection.shutdown(socket.SHUT_RDWR)
            return True
        return one.reply(503) if how else None

    scripted.instead("early PUT", "/blobs/uploads/", fail_twice)
    assert desk.push(scripted.address).evidence == 4
    assert desk.pull(scripted.address).evidence == 4


@pytest.mark.parametrize("late", ["head", "trickle"])
def test_silence_and_a_trickle_end(
    desk: Desk, scripted: ScriptedRegistry, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builder.resolve.exchange.SILENCE", 1.0)
    desk.push(scripted.address)

    def slow(one: Handler) -> bool:
        if late == "trickle":
            one.send_response(200)
            one.send_header("content-length", "100000")
            one.end_headers()
            for _ in range(60):
                one.wfile.write(b"x")
                time.sleep(0.1)
        else:
            time.sleep(6)
        return True

    scripted.instead("GET", "/blobs/", slow)
    desk.refused(scripted.address, "unreachable")


def test_a_redirect_gets_no_login_and_may_not_go_round(desk: Desk, scripted: ScriptedRegistry) -> None:
    """Blobs come from a storage of others; the token of the registry does not go there."""
    challenge = f'Bearer realm="http://{scripted.address}/token",service="s",scope="repository:team/agents:'
    scripted.instead(
        "GET", "^/token", lambda one: one.reply(200, json.dumps({"token": "dummy-token"}).encode())
    )

    def guard(one: Handler) -> object:
        scope = "pull" if one.command in ("GET", "HEAD") else "pull,push"
        if one.headers.get("authorization") == "Bearer dummy-token":
            return None
        return one.reply(401, www_authenticate=f'{challenge}{scope}"')

    for method in ("GET", "HEAD", "POST", "PUT"):
        scripted.instead(method, "^/v2/", guard)
    desk.push(scripted.address)
    with scripted_registry() as storage:
        storage.blobs = scripted.blobs
        scripted.instead(
            "GET", "/blobs/", lambda one: one.reply(307, location=f"http://{storage.address}{one.path}")
        )
        assert desk.pull(scripted.address).evidence == 4
        assert storage.seen
        assert {login for _, _, login in storage.seen} == {""}
        storage.instead(
            "GET", "/blobs/", lambda one: one.reply(307, location=f"http://{storage.address}{one.path}")
        )
        desk.refused(scripted.address, "server")


def test_an_upload_that_is_sent_elsewhere_gets_no_login(desk: Desk, scripted: ScriptedRegistry) -> None:
    scripted.instead(
        "GET", "^/token", lambda one: one.reply(200, json.dumps({"token": "dummy-token"}).encode())
    )

    def guard(one: Handler) -> object:
        if one.headers.get("authorization"):
            return None
        return one.reply(401, www_authenticate=f'Bearer realm="http://{scripted.address}/token"')

    scripted.instead("POST", "^/v2/", guard)
    with scripted_registry() as storage:
        place = f"http://{storage.address}/v2/team/agents/blobs/uploads/session?state=a%2Bb"
        scripted.instead("POST", "/uploads/$", lambda one: one.reply(202, location=place))
        scripted.blobs = storage.blobs
        assert desk.push(scripted.address).sent > 0
        assert {login for _, _, login in storage.seen} == {""}


def test_an_entry_that_was_overwritten_is_added_again(desk: Desk, scripted: ScriptedRegistry) -> None:
    """Somebody read the index before us and wrote it after us, once."""
    scripted.api = False
    stolen: list[bytes] = []

    def overwrite(one: Handler) -> object:
        if stolen:
            return None
        stolen.append(one.body)
        raw = index_of([{"mediaType": MEDIA_MANIFEST, "digest": str(Digest.of(b"theirs")), "size": 6}])
        scripted.manifests[str(Digest.of(raw))] = raw
        scripted.tags[f"sha256-{desk.image.hex}"] = str(Digest.of(raw))
        return one.reply(201)

    scripted.instead("PUT", "/manifests/sha256-", overwrite)
    desk.push(scripted.address)
    index = json.loads(scripted.manifests[scripted.tags[f"sha256-{desk.image.hex}"]])
    digests = [entry["digest"] for entry in index["manifests"]]
    assert len(digests) == 5
    assert str(Digest.of(b"theirs")) in digests
    assert {entry.get("artifactType", "") for entry in index["manifests"]} > {BUNDLE_TYPE}


def test_a_registry_that_honours_conditions(desk: Desk, scripted: ScriptedRegistry) -> None:
    scripted.api, scripted.conditional = False, True
    stale = iter([True])

    def once_stale(one: Handler) -> object:
        return one.reply(412) if next(stale, False) else None

    scripted.instead("PUT", "/manifests/sha256-", once_stale)
    desk.push(scripted.address)
    assert desk.pull(scripted.address).evidence == 4
    assert len([path for path in scripted.paths("PUT") if "/manifests/sha256-" in path]) == 2
