"""The dialects' calls over a shim: images found by digest, loads checked, failures told by questions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from backend.containers import ImageIdKind, LoadedImage
from backend.engines.client import Client
from backend.engines.docker import Docker
from backend.engines.podman import Podman
from images.errors import HostError
from images.oci import OciImage
from provenance.layout import open_image
from tests.fakes.layouts import make_image
from tests.fakes.shim import Shim
from tests.unit.backend.test_engine_archive import members

DOCUMENTS = Path(__file__).parent / "documents"
ID = "0123456789abcdef" * 4
SECRET = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"


@pytest.fixture
def image(tmp_path: Path) -> OciImage:
    return open_image(tmp_path / "layout", make_image(tmp_path / "layout"))


@pytest.fixture
def docker(tmp_path: Path) -> tuple[Docker, Shim]:
    shim = Shim(tmp_path, "docker").install()
    client = Client(product="docker", start=(str(shim.path),), environment={"PATH": "/usr/bin:/bin"})
    shim.answer("image-inspect", stderr="Error: No such image", code=1)
    shim.answer("info", (DOCUMENTS / "docker-20.10-info.json").read_text())
    return Docker(client=client, endpoint="unix:///run/docker.sock"), shim


@pytest.fixture
def podman(tmp_path: Path) -> tuple[Podman, Shim]:
    shim = Shim(tmp_path, "podman").install()
    client = Client(product="podman", start=(str(shim.path),), environment={"PATH": "/usr/bin:/bin"})
    shim.answer("image-inspect", stderr="Error: no such image", code=125)
    return Podman(client=client, signature_policy=tmp_path / "policy.json", rootless=True), shim


def described(image: OciImage, identity: str, **changes: Any) -> str:
    layers = [str(digest) for digest in image.settings.diff_ids]
    return json.dumps({"Id": identity, "Digest": image.digest, "RootFS": {"Layers": layers}} | changes)


def test_a_classic_store_has_the_configuration_s_digest(docker: tuple[Docker, Shim], image: OciImage) -> None:
    engine, shim = docker
    shim.answer("image-inspect", described(image, image.settings.digest))
    assert engine.find_image(image) == LoadedImage(
        image=image, id=image.settings.digest, id_kind=ImageIdKind.CONFIG
    )


def test_a_containerd_store_has_the_manifest_s_digest(docker: tuple[Docker, Shim], image: OciImage) -> None:
    engine, shim = docker
    shim.answer("image-inspect", described(image, image.digest))
    assert engine.find_image(image) == LoadedImage(image=image, id=image.digest, id_kind=ImageIdKind.MANIFEST)


@pytest.mark.parametrize(
    "changes", [{"Id": "sha256:" + "0" * 64}, {"RootFS": {"Layers": []}}, {"RootFS": {"Layers": None}}]
)
def test_an_image_with_another_id_or_other_layers_is_not_ours(
    docker: tuple[Docker, Shim], podman: tuple[Podman, Shim], image: OciImage, changes: dict[str, Any]
) -> None:
    for engine, shim in (docker, podman):
        shim.answer("image-inspect", described(image, image.settings.digest, **changes))
        assert engine.find_image(image) is None


def test_docker_gets_a_saved_archive_on_its_input(
    docker: tuple[Docker, Shim], image: OciImage, tmp_path: Path
) -> None:
    engine, shim = docker
    shim.answer("image-load", "Loaded image ID: whatever it says\n")
    shim.reads("image-load")
    shim.answer("image-inspect", described(image, image.settings.digest), after="image-load")
    assert engine.load(image, tmp_path).id == image.settings.digest
    assert "manifest.json" in members(shim.input())


def test_a_containerd_store_gets_a_layout_on_its_input(
    docker: tuple[Docker, Shim], image: OciImage, tmp_path: Path
) -> None:
    engine, shim = docker
    info = json.loads((DOCUMENTS / "docker-20.10-info.json").read_text())
    info["DriverStatus"] = [["driver-type", "io.containerd.snapshotter.v1"]]
    shim.answer("info", json.dumps(info))
    shim.answer("image-load", "")
    shim.reads("image-load")
    shim.answer("image-inspect", described(image, image.digest), after="image-load")
    assert engine.load(image, tmp_path).id_kind is ImageIdKind.MANIFEST
    assert "oci-layout" in members(shim.input())


def test_a_load_that_gives_another_image_is_an_error(
    docker: tuple[Docker, Shim], podman: tuple[Podman, Shim], image: OciImage, tmp_path: Path
) -> None:
    other = described(image, "sha256:" + "1" * 64)
    for engine, shim, verb in ((*docker, "image-load"), (*podman, "image-pull")):
        shim.answer(verb, "")
        shim.answer("image-inspect", other, after=verb)
        with pytest.raises(HostError, match="digest") as caught:
            engine.load(image, tmp_path)
        assert caught.value.reason == "image-id"


def test_a_load_that_fails_is_told_and_what_is_there_is_not_loaded_again(
    docker: tuple[Docker, Shim], image: OciImage, tmp_path: Path
) -> None:
    engine, shim = docker
    shim.answer("image-load", stderr="no space left on device", code=1)
    with pytest.raises(HostError, match="no space left on device"):
        engine.load(image, tmp_path)
    shim.answer("image-inspect", described(image, image.settings.digest))
    before = len(shim.calls())
    engine.load(image, tmp_path)
    assert [call[:2] for call in shim.calls()[before:]] == [["image", "inspect"]]


def test_a_pull_beside_another_one_is_done_when_the_image_is_there(
    podman: tuple[Podman, Shim], image: OciImage, tmp_path: Path
) -> None:
    """The other one took away the name that this pull was to find it by; what is there is what counts."""
    engine, shim = podman
    shim.answer("image-pull", stderr="Error: image not known", code=125)
    shim.answer("image-untag", "")
    with pytest.raises(HostError, match="image not known"):
        engine.load(image, tmp_path)
    found = json.dumps([json.loads(described(image, image.settings.digest.hex))])
    shim.answer("image-inspect", found, after="image-pull")
    assert engine.load(image, tmp_path).id == image.settings.digest


@pytest.mark.parametrize("name", ["staging", "Upper", "a-_b", "two words", "trailing_"])
def test_podman_pulls_from_a_private_layout_and_loses_its_name(
    podman: tuple[Podman, Shim], image: OciImage, tmp_path: Path, name: str
) -> None:
    """Whatever the staging directory is called: Podman makes a name of the path that it is given."""
    engine, shim = podman
    staging = tmp_path / name
    staging.mkdir()
    shim.answer("image-pull", image.settings.digest.hex)
    shim.answer("image-untag", "")
    found = json.dumps([json.loads(described(image, image.settings.digest.hex))])
    shim.answer("image-inspect", found, after="image-pull")
    assert engine.load(image, staging).id == image.settings.digest
    pull = next(call for call in shim.calls() if call[:2] == ["image", "pull"])
    assert pull[2:4] == ["--quiet", f"--signature-policy={tmp_path / 'policy.json'}"]
    assert re.fullmatch(r"oci:image-[0-9a-f]{16}", pull[4])
    assert ["image", "untag", image.settings.digest.hex] in shim.calls()
    assert not list(staging.iterdir())


def test_a_container_that_is_not_listed_is_gone_and_one_that_is_cannot_be_inspected(
    docker: tuple[Docker, Shim], podman: tuple[Podman, Shim]
) -> None:
    for engine, shim in (docker, podman):
        shim.answer("container-inspect", stderr="No such container", code=1)
        shim.answer("container-ls", "")
        assert engine.inspect(ID) is None
        shim.answer("container-ls", ID + "\n")
        with pytest.raises(HostError, match="cannot inspect"):
            engine.inspect(ID)
        shim.answer("container-ls", stderr="Cannot connect to the daemon", code=1)
        with pytest.raises(HostError, match="Cannot connect"):
            engine.inspect(ID)


def test_remove_is_done_when_nothing_is_listed_whatever_the_client_says(
    docker: tuple[Docker, Shim], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, shim = docker
    shim.answer("container-rm", stderr="removal of container is already in progress", code=1)
    shim.answer("container-ls", "")
    engine.remove(ID)
    monkeypatch.setattr("backend.engines.calls.GONE_SECONDS", 0.3)
    shim.answer("container-ls", ID + "\n")
    with pytest.raises(HostError, match="already in progress"):
        engine.remove(ID)


def test_an_engine_that_prints_something_else_than_an_id_is_not_believed(
    docker: tuple[Docker, Shim], image: OciImage
) -> None:
    engine, shim = docker
    shim.answer("container-ls", "abc\n")
    with pytest.raises(HostError, match="not a container id"):
        engine.list_labelled("a", "b")


def test_a_call_that_hangs_is_ended_in_time(docker: tuple[Docker, Shim]) -> None:
    engine, shim = docker
    shim.path.write_text("#!/bin/sh\ntrap '' TERM\nsleep 60\n")
    with pytest.raises(HostError, match=r"not done within 0\.3 s"):
        engine.client.ask("info", seconds=0.3)


def test_no_error_repeats_what_looks_like_a_credential(docker: tuple[Docker, Shim]) -> None:
    engine, shim = docker
    shim.answer("container-start", stderr=f"bad value {SECRET} \x1b[31m in request", code=1)
    with pytest.raises(HostError) as caught:
        engine.start(ID)
    text = str(caught.value) + repr(caught.value)
    assert SECRET not in text
    assert "\x1b" not in text
    assert "bad value" in text


def test_a_client_that_is_missing_is_an_error(tmp_path: Path) -> None:
    client = Client(product="docker", start=(str(tmp_path / "nowhere"),), environment={})
    with pytest.raises(HostError, match="nowhere"):
        Docker(client=client, endpoint="unix:///run/docker.sock").facts()
