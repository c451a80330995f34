"""Which engine is chosen, by its own words, and what its client gets to see."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from backend.engines.protocol import Engine
from backend.engines.select import connect, docker_endpoint, private_directory, write_setting
from images.errors import HostError
from tests.fakes.shim import Shim

DOCUMENTS = Path(__file__).parent / "documents"
PASSWORD = "dummy-password-1f9a"


def install_docker(folder: Path, info: str | None = None) -> Shim:
    shim = Shim(folder, "docker").install()
    shim.answer("version", (DOCUMENTS / "docker-20.10-version.json").read_text())
    shim.answer("info", info or (DOCUMENTS / "docker-20.10-info.json").read_text())
    shim.answer("context-inspect", '"unix:///run/user/1000/docker.sock"')
    return shim


def podman_version(version: str = "4.3.1") -> str:
    return json.dumps({"Client": {"Version": version, "APIVersion": version}})


def install_podman(folder: Path, *, rootless: bool = True) -> Shim:
    shim = Shim(folder, "podman").install()
    shim.answer("version", podman_version())
    document = json.loads((DOCUMENTS / "podman-4.3-info.json").read_text())
    document["host"]["security"]["rootless"] = rootless
    shim.answer("info", json.dumps(document))
    return shim


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {
        "PATH": f"{folder}:/usr/bin:/bin",
        "HOME": "/home/operator",
        "HTTP_PROXY": f"http://user:{PASSWORD}@proxy.invalid",
        "DOCKER_AUTH_CONFIG": PASSWORD,
        "XDG_RUNTIME_DIR": "/run/user/1000",
        **more,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "bin"
    made.mkdir()
    # The real clients of this machine must not be found behind the shims.
    for name in ("sh", "env", "cat"):
        (made / name).symlink_to(f"/bin/{name}" if name != "env" else "/usr/bin/env")
    return made


def only(folder: Path, **more: str) -> dict[str, str]:
    return environment(folder, PATH=str(folder), **more)


def test_the_named_engine_is_connected_with_our_own_configuration(folder: Path, tmp_path: Path) -> None:
    shim = install_docker(folder)
    engine = connect("docker", tmp_path / "client", only(folder, DOCKER_HOST="unix:///run/d.sock"))
    assert engine.product == "docker"
    assert engine.facts().endpoint == "unix:///run/d.sock"
    seen = shim.environment()
    assert seen["DOCKER_HOST"] == "unix:///run/d.sock"
    assert seen["DOCKER_CONFIG"] == str(tmp_path / "client" / "docker")
    assert (tmp_path / "client" / "docker" / "config.json").read_text() == "{}\n"
    assert PASSWORD not in str(seen)
    assert "HTTP_PROXY" not in seen


def test_podman_gets_our_files_and_overlay_by_name(folder: Path, tmp_path: Path) -> None:
    shim = install_podman(folder)
    engine = connect("podman", tmp_path / "client", only(folder))
    assert engine.product == "podman"
    home = tmp_path / "client" / "podman"
    seen = shim.environment()
    assert seen["HOME"] == str(home)
    assert seen["CONTAINERS_CONF"] == str(home / "containers.conf")
    assert seen["CONTAINERS_STORAGE_CONF"] == str(home / "storage.conf")
    assert seen["CONTAINERS_REGISTRIES_CONF"] == str(home / "registries.conf")
    assert 'driver = "overlay"' in (home / "storage.conf").read_text()
    assert f"--default-mounts-file={home / 'mounts.conf'}" in shim.calls()[0]
    assert PASSWORD not in str(seen)


def test_podman_tells_all_of_itself_once_and_then_only_whether_it_is_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = install_podman(folder)
    machine = os.uname_result(("Linux", "workstation", "6.1.0-test", "#1", "x86_64"))
    monkeypatch.setattr("os.uname", lambda: machine)
    engine = connect("podman", tmp_path / "client", only(folder))
    first = engine.facts()
    assert engine.facts() == first
    assert [call[2] for call in shim.calls()] == ["info", "version", "version"]
    shim.answer("version", podman_version("4.9.0"))
    engine.facts()
    assert [call[2] for call in shim.calls()][-2:] == ["version", "info"]


def test_without_a_name_the_only_one_that_answers_is_taken(folder: Path, tmp_path: Path) -> None:
    install_podman(folder)
    assert connect(None, tmp_path / "client", only(folder)).product == "podman"


def test_two_that_answer_are_a_question_for_the_user(folder: Path, tmp_path: Path) -> None:
    install_podman(folder, rootless=False)
    install_docker(folder)
    with pytest.raises(HostError, match="docker and podman both answer") as caught:
        connect(None, tmp_path / "client", only(folder))
    assert caught.value.hint == "use --engine docker, or write engine in settings.toml"
    assert caught.value.reason == "engine-undecided"


def test_between_equals_an_exported_address_of_docker_decides(folder: Path, tmp_path: Path) -> None:
    install_podman(folder, rootless=False)
    install_docker(folder)
    exported = only(folder, DOCKER_HOST="unix:///run/d.sock")
    assert connect(None, tmp_path / "client", exported).product == "docker"

    def why_not(engine: Engine) -> str:
        return "cannot start a container" if engine.product == "docker" else ""

    assert connect(None, tmp_path / "client", exported, why_not).product == "podman"
    assert connect("podman", tmp_path / "client", exported).product == "podman"


def test_of_two_that_answer_the_only_one_whose_probe_passes_is_taken(folder: Path, tmp_path: Path) -> None:
    install_podman(folder, rootless=False)
    install_docker(folder)
    asked = []

    def why_not(engine: Engine) -> str:
        asked.append(engine.product)
        return "cannot start a container" if engine.product == "podman" else ""

    assert connect(None, tmp_path / "client", only(folder), why_not).product == "docker"
    assert asked == ["docker", "podman"]
    with pytest.raises(HostError, match="docker: no; podman: no") as caught:
        connect(None, tmp_path / "client", only(folder), lambda _: "no")
    assert caught.value.hint.startswith("use --engine docker")


def test_whoever_names_an_engine_or_has_one_alone_waits_for_no_probe(folder: Path, tmp_path: Path) -> None:
    def never(engine: Engine) -> str:
        raise AssertionError(engine)

    install_podman(folder, rootless=True)
    assert connect(None, tmp_path / "client", only(folder), never).product == "podman"
    install_docker(folder)
    assert connect("docker", tmp_path / "client", only(folder), never).product == "docker"
    assert connect(None, tmp_path / "client", only(folder), never).product == "podman"


def test_a_rootless_engine_is_taken_before_a_rootful_one(folder: Path, tmp_path: Path) -> None:
    install_podman(folder, rootless=True)
    install_docker(folder)
    assert connect(None, tmp_path / "client", only(folder)).product == "podman"
    exported = only(folder, DOCKER_HOST="unix:///run/d.sock")
    assert connect(None, tmp_path / "client", exported).product == "podman"


def test_none_that_answers_is_an_error_that_lists_them(folder: Path, tmp_path: Path) -> None:
    shim = install_docker(folder)
    shim.answer("info", stderr="Cannot connect to the daemon", code=1)
    with pytest.raises(HostError, match=r"docker: .*Cannot connect.*podman is not on the PATH"):
        connect(None, tmp_path / "client", only(folder))


def test_an_unknown_name_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no such engine"):
        connect("nerdctl", tmp_path / "client", only(folder))


def test_podman_under_the_name_of_docker_is_found_out(folder: Path, tmp_path: Path) -> None:
    install_docker(folder, (DOCUMENTS / "podman-4.3-info.json").read_text())
    with pytest.raises(HostError, match="Podman under another name") as caught:
        connect("docker", tmp_path / "client", only(folder))
    assert caught.value.hint == "use --engine podman"


def test_docker_s_client_over_podman_s_socket_is_found_out(folder: Path, tmp_path: Path) -> None:
    shim = install_docker(folder)
    document = json.loads((DOCUMENTS / "docker-20.10-version.json").read_text())
    document["Server"]["Components"] = [{"Name": "Podman Engine", "Version": "4.3.1"}]
    shim.answer("version", json.dumps(document))
    with pytest.raises(HostError, match="reaches podman"):
        connect("docker", tmp_path / "client", only(folder))


def test_the_endpoint_is_the_one_of_the_operator_s_own_client(folder: Path) -> None:
    shim = install_docker(folder)
    program = str(shim.path)
    assert docker_endpoint(program, only(folder)) == "unix:///run/user/1000/docker.sock"
    shim.answer("context-inspect", stderr="no such context", code=1)
    assert docker_endpoint(program, only(folder)) == "unix:///var/run/docker.sock"
    assert docker_endpoint(program, only(folder, DOCKER_HOST="unix:///run/e.sock")) == "unix:///run/e.sock"


@pytest.mark.parametrize(
    "address",
    [
        f"tcp://user:{PASSWORD}@daemon.invalid:2376",
        f"ssh://user:{PASSWORD}@daemon.invalid",
        f"{PASSWORD}://x",
        f"unix://relative/{PASSWORD}",
        "unix:///run/a\nb",
    ],
)
def test_another_endpoint_is_refused_without_being_repeated(folder: Path, address: str) -> None:
    with pytest.raises(HostError) as caught:
        docker_endpoint(str(folder / "docker"), only(folder, DOCKER_HOST=address))
    assert PASSWORD not in str(caught.value) + repr(caught.value) + caught.value.hint


def test_an_engine_that_answers_something_else_is_an_error(folder: Path, tmp_path: Path) -> None:
    for answer in ("", "not json", "[]", '{"Server": 1}', "{" * 2000):
        shim = Shim(tmp_path / f"x{len(answer)}", "docker").install()
        shim.answer("version", answer)
        shim.answer("info", answer)
        with pytest.raises(HostError):
            connect("docker", tmp_path / "client", only(shim.folder, DOCKER_HOST="unix:///run/d.sock"))


def test_settings_are_written_anew_when_they_were_changed(tmp_path: Path) -> None:
    home = private_directory(tmp_path / "client")
    write_setting(home / "a.conf", "ours\n")
    (home / "a.conf").write_text("theirs\n")
    write_setting(home / "a.conf", "ours\n")
    assert (home / "a.conf").read_text() == "ours\n"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("ours\n")
    (home / "a.conf").unlink()
    (home / "a.conf").symlink_to(elsewhere)
    write_setting(home / "a.conf", "ours\n")
    assert not (home / "a.conf").is_symlink()


def test_a_client_home_that_others_can_open_or_a_link_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    link = tmp_path / "link"
    link.symlink_to(private_directory(tmp_path / "target"))
    for path in (open_to_all, link):
        with pytest.raises(HostError, match="private"):
            private_directory(path)
