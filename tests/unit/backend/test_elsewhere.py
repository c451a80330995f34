"""The plan for use elsewhere: the launch's own settings in each form, headed, valid, and never admitted."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from backend.account import agent_exec
from backend.containers import ContainerPlan, ImageIdKind, Network
from backend.elsewhere.devcontainer import devcontainer_file
from backend.elsewhere.kubernetes import kubernetes_manifests
from backend.elsewhere.showing import Form, show_elsewhere
from backend.elsewhere.yaml_text import yaml_document
from backend.engines.docker_create import create_arguments
from backend.ownership import Owner
from backend.plan import ElsewherePlan, plan_elsewhere, plan_launch
from builder.cli.arguments import parse_arguments
from builder.cli.options.parser import BadUsage
from images.config import AgentName
from images.errors import HostError, LaunchReason, LaunchRefused
from provenance.verify import VerifiedImage
from tests.fakes.admitted import LIMITS, STATE, admitted_of, request

TESTS = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden/elsewhere"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@pytest.fixture
def plan(verified: VerifiedImage) -> ElsewherePlan:
    return plan_elsewhere(verified, agent=AgentName.CLAUDE_CODE, limits=LIMITS, deadline=7200.0)


def schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((TESTS / f"schemas/{name}.schema.json").read_text())
    return loaded


def without_comments(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("//"))


def named(text: str, plan: ElsewherePlan) -> str:
    """Digests by what they are: those of the tests' image are made anew for each run."""
    verified = plan.verified
    words = {
        str(verified.image.digest): "MANIFEST",
        str(verified.image.settings.digest): "CONFIGURATION",
        str(verified.policy.digest): "POLICY",
        str(verified.lock_digest): "LOCK",
    }
    return DIGEST.sub(lambda found: words[found[0]], text)


@pytest.mark.parametrize("form", list(Form))
def test_each_form_as_text(plan: ElsewherePlan, form: Form) -> None:
    assert named(show_elsewhere(plan, form), plan) == (GOLDEN / f"{form.value}.txt").read_text()


@pytest.mark.parametrize("form", list(Form))
def test_the_first_line_says_that_builder_did_not_admit_it(plan: ElsewherePlan, form: Form) -> None:
    first = show_elsewhere(plan, form).splitlines()[0]
    assert re.match(r"(#|//) not admitted by builder: ", first)


def test_it_is_the_plan_of_a_launch(verified: VerifiedImage, plan: ElsewherePlan) -> None:
    asked = request(command=(), agent="claude-code", deadline=7200.0)
    launched = plan_launch(admitted_of(verified), asked, Owner(STATE, "c" * 32))
    alike = dataclasses.replace(
        plan.container,
        name=launched.container.name,
        labels=launched.container.labels,
        # A launch's own counts a minute more: its controller ends it first.
        arguments=launched.container.arguments,
        deadline=launched.container.deadline,
    )
    assert alike == launched.container
    assert plan.command == launched.command


def test_it_carries_no_label_of_this_state(plan: ElsewherePlan) -> None:
    assert plan.container.labels == ()  # builder reap takes what carries them for its own


def test_it_names_a_digest_and_no_tag(plan: ElsewherePlan) -> None:
    docker = create_arguments(plan.container)
    assert plan.container.image.id_kind is ImageIdKind.CONFIG
    assert str(plan.verified.image.settings.digest) in docker
    pod = documents(plan)[1]
    assert pod["spec"]["containers"][0]["image"] == f"team/agents@{plan.verified.image.digest}"


def test_without_an_agent_it_is_a_shell(verified: VerifiedImage) -> None:
    plan = plan_elsewhere(verified, agent=None, limits=LIMITS, deadline=60.0)
    assert plan.command == agent_exec(plan.account, ("sh",))


def test_an_agent_that_the_image_lacks(verified: VerifiedImage) -> None:
    bare = dataclasses.replace(verified, lock=dataclasses.replace(verified.lock, agents=()))
    with pytest.raises(LaunchRefused) as refused:
        plan_elsewhere(bare, agent=AgentName.CLAUDE_CODE, limits=LIMITS, deadline=60.0)
    assert refused.value.reason == LaunchReason.UNKNOWN_AGENT.value


@pytest.mark.parametrize("name", ["", "Team", "a\n# admitted", "a b", "../x", "a" * 129, "a'b"])
def test_a_name_that_would_be_read_otherwise(verified: VerifiedImage, name: str) -> None:
    with pytest.raises(LaunchRefused, match="the image's name is"):
        plan_elsewhere(
            dataclasses.replace(verified, image_name=name), agent=None, limits=LIMITS, deadline=60.0
        )


def test_docker_is_told_what_a_launch_tells_it(plan: ElsewherePlan) -> None:
    text = show_elsewhere(plan, Form.DOCKER).replace("\\\n", "")
    create, start, command = (
        tuple(shlex.split(line)) for line in text.splitlines() if not line.startswith("#")
    )
    assert create == ("docker", *create_arguments(plan.container))
    assert start == ("docker", "container", "start", "team-agents")
    assert command[-2:] == ("team-agents", "/usr/local/bin/claude")
    assert "--user=1000:1000" in command
    assert not any("TERM" in word for word in command)


def test_compose_is_valid_and_the_same(plan: ElsewherePlan) -> None:
    document = yaml.safe_load(show_elsewhere(plan, Form.COMPOSE))
    jsonschema.validate(document, schema("compose"))
    service = document["services"]["agent"]
    flags = dict(word.partition("=")[::2] for word in create_arguments(plan.container) if "=" in word)
    assert service["user"] == flags["--user"] == "997:997"
    assert service["network_mode"] == flags["--network"] == "none"
    assert service["cap_drop"] == [flags["--cap-drop"]] == ["ALL"]
    assert service["read_only"] is True
    assert str(service["mem_limit"]) == flags["--memory"]
    assert str(service["memswap_limit"]) == flags["--memory-swap"]
    assert str(service["pids_limit"]) == flags["--pids-limit"]
    assert service["tmpfs"] == [
        word.removeprefix("--tmpfs=") for word in create_arguments(plan.container) if "--tmpfs=" in word
    ]
    assert tuple(service["command"]) == plan.container.arguments
    assert not {"volumes", "devices", "ports", "cap_add", "env_file", "environment"} & set(service)


def test_a_devcontainer_is_valid_and_the_same(plan: ElsewherePlan) -> None:
    document = json.loads(without_comments(show_elsewhere(plan, Form.DEVCONTAINER)))
    jsonschema.validate(document, schema("devcontainer"))
    own = ("--name", "--user", "--workdir", "--interactive")
    flags = [word for word in create_arguments(plan.container) if word.startswith("--")]
    assert document["runArgs"] == [word for word in flags if not word.startswith(own)]
    assert document["containerUser"] == "997:997"
    assert document["remoteUser"] == "1000"
    assert document["updateRemoteUserUID"] is False  # else the tool builds another image on this one
    assert document["workspaceMount"] == ""  # else it mounts the folder that it lies in
    assert "${" not in json.dumps(document)


def documents(plan: ElsewherePlan) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(kubernetes_manifests(plan)))


def test_manifests_are_valid_and_the_same(plan: ElsewherePlan) -> None:
    policy, pod = documents(plan)
    for document in (policy, pod):
        jsonschema.validate(document, schema("kubernetes"))
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & set(policy["spec"])  # no rule: nothing is let through
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    spec = pod["spec"]
    (container,) = spec["containers"]
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 1000
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    sizes = {one["name"]: one["emptyDir"]["sizeLimit"] for one in spec["volumes"]}
    mounted = {one["mountPath"]: int(sizes[one["name"]]) for one in container["volumeMounts"]}
    assert mounted == {item.path: item.size for item in plan.container.tmpfs}
    assert container["resources"]["limits"] == {"cpu": "1.500", "memory": str(LIMITS.memory)}


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({"services": {"agent": {"cap_dropped": ["ALL"]}}}, "compose"),
        ({"image": "x", "runArguments": [], "remoteUser": 1000}, "devcontainer"),
        (
            {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "user": 1}]}},
            "kubernetes",
        ),
    ],
)
def test_the_schemas_find_what_is_wrong(document: dict[str, Any], name: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema(name))


def with_container(plan: ElsewherePlan, **changed: Any) -> ElsewherePlan:
    container: ContainerPlan = dataclasses.replace(plan.container, **changed)
    return dataclasses.replace(plan, container=container)


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize(
    "softer", [{"read_only_root": False}, {"network": Network.ORDINARY}, {"user": (0, 0)}]
)
def test_a_softer_plan_is_shown_in_no_form(plan: ElsewherePlan, form: Form, softer: dict[str, Any]) -> None:
    with pytest.raises(HostError, match="is not allowed"):
        show_elsewhere(with_container(plan, **softer), form)


def test_what_has_no_limits_names_none(plan: ElsewherePlan) -> None:
    plain = with_container(plan, limits=None)
    assert "resources" not in documents(plain)[1]["spec"]["containers"][0]
    assert "mem_limit" not in yaml.safe_load(show_elsewhere(plain, Form.COMPOSE))["services"]["agent"]
    assert "--memory" not in devcontainer_file(plain)


def test_the_command_line_offers_each_form_and_no_other() -> None:
    for form in Form:
        assert parse_arguments(["show", "--as", form.value]).form == form.value
    with pytest.raises(BadUsage):
        parse_arguments(["show", "--as", "podman"])


_PLAIN = st.recursive(
    st.one_of(
        st.text(st.characters(codec="utf-8", max_codepoint=0xFFFF)),
        st.integers(),
        st.booleans(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3),
        st.dictionaries(
            st.from_regex(r"[a-z][a-z._/-]{0,8}[a-z]", fullmatch=True), inner, min_size=1, max_size=3
        ),
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["a", "b.c/d", "e-f"]), _PLAIN, min_size=1))
def test_what_is_written_as_yaml_is_read_as_it_was(value: dict[str, Any]) -> None:
    assert yaml.safe_load(yaml_document(value)) == value
