"""The plan as Kubernetes manifests: a network policy that lets nothing through, and a pod."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from backend.containers import Network
from backend.elsewhere.yaml_text import Plain, yaml_document
from backend.engines.grammar import check_plan
from images.errors import HostError

if TYPE_CHECKING:
    from backend.containers import ContainerPlan, Tmpfs
    from backend.plan import ElsewherePlan

CONTAINER: Final = "agent"
_LABEL: Final = "app.kubernetes.io/name"


def kubernetes_manifests(plan: ElsewherePlan) -> str:
    """Two YAML documents; the policy comes first, so that it is there when the pod starts."""
    container = plan.container
    check_plan(container)
    if container.network is not Network.NONE:
        raise HostError("a pod with a network is not planned", where=container.name)
    argv = " ".join(plan.command.argv)
    notes = (
        f"put your registry before the name of the image; it has the configuration"
        f" {plan.verified.image.settings.digest}",
        "a network policy binds only where the cluster's network plugin enforces it",
        "one user inside, for exec knows no other: the agent can stop PID 1's count, and not the kubelet's",
        f"processes: podPidsLimit of the kubelet; the plan has {container.limits.pids}"
        if container.limits
        else "no limits are planned",
        "memory volumes count as the container's memory; they have no owner, mode, noexec, nosuid or nodev",
        f"the agent: kubectl exec --stdin --tty {container.name} -- {argv}",
    )
    documents = (_policy(container), _pod(plan))
    return "".join(f"# {line}\n" for line in notes) + "---\n".join(map(yaml_document, documents))


def _policy(container: ContainerPlan) -> dict[str, Plain]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": container.name},
        "spec": {
            "podSelector": {"matchLabels": {_LABEL: container.name}},
            "policyTypes": ["Ingress", "Egress"],
        },
    }


def _pod(plan: ElsewherePlan) -> dict[str, Plain]:
    container, account = plan.container, plan.account
    spec: dict[str, Plain] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": math.ceil(container.deadline),
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostname": container.hostname,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": account.uid,
            "runAsGroup": account.gid,
            "fsGroup": account.gid,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(plan)],
        "volumes": [
            {"name": _volume_name(item), "emptyDir": {"medium": "Memory", "sizeLimit": str(item.size)}}
            for item in container.tmpfs
        ],
    }
    metadata: dict[str, Plain] = {"name": container.name, "labels": {_LABEL: container.name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(plan: ElsewherePlan) -> dict[str, Plain]:
    container, command, image = plan.container, plan.command, plan.verified.image
    made: dict[str, Plain] = {
        "name": CONTAINER,
        "image": f"{plan.verified.image_name}@{image.digest}",
        "imagePullPolicy": "IfNotPresent",  # whoever serves it: the digest says what it is
        "args": container.arguments,
        "stdin": container.keep_stdin,
        "workingDir": command.working_dir,
        "env": [{"name": name, "value": value} for name, value in command.environment if name != "TERM"],
        "securityContext": {
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": container.read_only_root,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": _volume_name(item), "mountPath": item.path} for item in container.tmpfs],
    }
    if (limits := container.limits) is not None:
        made["resources"] = {"limits": {"cpu": f"{limits.cpus:.3f}", "memory": str(limits.memory)}}
    return made


def _volume_name(item: Tmpfs) -> str:
    return item.path.strip("/").replace("/", "-").replace("_", "-").lower()
