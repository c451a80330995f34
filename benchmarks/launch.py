"""Measure launches of a proved image beside the engine's own `run` of the same image, and how fast one dies.

    python -m benchmarks.launch --state DIR --config-dir DIR --lock FILE --digest sha256:… [--engine NAME]
                                [--runs N] [--stores N] [--kills N]

A launch is measured in process from the admitted image to the command's first byte, and with the whole of
admission before it; ``run`` of the engine is a process of its own, without hardening. Runs are interleaved.
With ``--stores`` so many launches under `engine_store = "rehash"`. With ``--kills`` a controller with a
hostile agent inside is killed that many times: seconds until the engine says that the container does not run.
Prints one JSON object; times in seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from backend.admission import AdmittedImage
from backend.agent_command import Output
from backend.containers import ContainerStatus
from backend.death_watch import hostile_plan
from backend.engines.protocol import Engine
from backend.recovery import containers_of
from backend.requests import LaunchRequest
from backend.runner import Command, run
from builder.cli.arguments import parse_arguments
from builder.cli.invocation import Invocation, make_invocation
from builder.cli.platform import host_platform
from builder.cli.session import key_of, open_workshop, policy_of, role_keys
from builder.launching import (
    Launcher,
    RunRequest,
    admit_image,
    launch_image,
    launch_request,
    verify_for_launch,
)
from builder.verifying import Chosen, Verification, choose_image
from builder.workshop import Workshop
from provenance.attest import signer_id
from provenance.policy import Policy
from provenance.policy_model import Role
from provenance.verify import Purpose

SAY = ("sh", "-c", "echo here")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What one launch needs, made once as `builder run` makes it."""

    workshop: Workshop
    engine: Engine
    chosen: Chosen
    policy: Policy
    launcher: Launcher

    def admit(self) -> AdmittedImage:
        what = Verification(
            state=self.workshop.state,
            policy=self.policy,
            purpose=Purpose.ADMISSION,
            platform=self.launcher.platform,
            now=self.launcher.now,
        )
        verified = verify_for_launch(self.chosen, what)
        return admit_image(self.workshop, self.engine, verified, self.policy, self.launcher)

    def request(self) -> LaunchRequest:
        asked = RunRequest(command=SAY, agent="", arguments=(), deadline=60.0)
        request = launch_request(self.chosen, asked, self.workshop.settings, self.policy, self.launcher.now())
        return replace(request, run_id=secrets.token_hex(8))

    def launch(self, admitted: AdmittedImage) -> tuple[float, float]:
        """Seconds to the first byte, and to the end with everything removed and the record signed."""
        first: list[float] = []

        def see(_: bytes) -> None:
            first.append(time.monotonic())

        begun = time.monotonic()
        with self.workshop.state.staging("launch") as staging:
            launch_image(
                self.workshop,
                self.engine,
                admitted,
                self.request(),
                launcher=self.launcher,
                output=Output(on_stdout=see),
                staging=staging,
            )
        return first[0] - begun, time.monotonic() - begun


def open_bench(invocation: Invocation) -> Bench:
    """From the arguments of a `builder run`."""
    options, platform = invocation.options, host_platform()
    workshop = open_workshop(invocation)
    policy = policy_of(invocation, beside=None)
    signer = key_of(invocation, Role.LAUNCHER)
    return Bench(
        workshop=workshop,
        engine=workshop.connect(),
        chosen=choose_image(workshop.state, options.image, options.lock, platform, invocation.working_dir),
        policy=policy,
        launcher=Launcher(
            platform=platform,
            signer=signer,
            launcher_id=signer_id(policy, Role.LAUNCHER, signer.public.fingerprint),
            version=version("agent-image-builder"),
            role_keys=role_keys(invocation),
            now=lambda: datetime.now(UTC),
        ),
    )


def engine_run(bench: Bench, image: str) -> tuple[float, float]:
    """The engine's own client: seconds to the first byte, and to its end."""
    first: list[float] = []
    begun = time.monotonic()
    argv = (bench.engine.product, "run", "--rm", "--entrypoint=sh", image, *SAY[1:])
    done = run(
        Command(argv=argv, environment=dict(os.environ), deadline=120),
        on_stdout=lambda _: first.append(time.monotonic()),
    )
    assert done.ok, done.stderr
    return first[0] - begun, time.monotonic() - begun


def measure(bench: Bench, runs: int) -> dict[str, object]:
    admitted = bench.admit()
    found = bench.engine.find_image(admitted.image)
    if found is None:
        bench.launch(admitted)  # loads it
        found = bench.engine.find_image(admitted.image)
    assert found is not None
    image = found.id.hex
    bench.launch(admitted)
    engine_run(bench, image)
    rows: dict[str, list[float]] = {}

    def keep(name: str, measured: tuple[float, float]) -> None:
        rows.setdefault(f"{name}, first byte", []).append(measured[0])
        rows.setdefault(f"{name}, whole", []).append(measured[1])

    for _ in range(runs):
        begun = time.monotonic()
        again = bench.admit()
        rows.setdefault("admission", []).append(time.monotonic() - begun)
        keep("launch", bench.launch(again))
        keep("engine run", engine_run(bench, image))
    medians = {name: round(statistics.median(times), 3) for name, times in rows.items()}
    ours = medians["launch, first byte"]
    return {
        "seconds": medians,
        "first byte / engine": round(ours / medians["engine run, first byte"], 2),
        "admission and first byte / engine": round(
            (medians["admission"] + ours) / medians["engine run, first byte"], 2
        ),
    }


def measure_store(bench: Bench, runs: int) -> dict[str, object]:
    """The same launch under a policy that has the engine's store hashed again: anew, and as remembered."""
    admitted = replace(bench.admit(), rehash_store=True)
    kept = bench.workshop.state.probe / f"store-{admitted.image.digest.hex}.json"
    rows: dict[str, list[float]] = {"hashed": [], "hashed before": [], "trusted": []}
    for _ in range(runs):
        kept.unlink(missing_ok=True)
        rows["hashed"].append(bench.launch(admitted)[0])
        rows["hashed before"].append(bench.launch(admitted)[0])
        rows["trusted"].append(bench.launch(replace(admitted, rehash_store=False))[0])
    medians = {name: round(statistics.median(times), 3) for name, times in rows.items()}
    ratios = {f"{name} / trusted": round(medians[name] / medians["trusted"], 2) for name in rows}
    return {"seconds": medians, **ratios}


def kill(bench: Bench, start: Callable[[], subprocess.Popen[bytes]]) -> float:
    """Seconds from SIGKILL of the controller until its container does not run."""
    controller = start()
    assert controller.stdout is not None
    while b"ready" not in (line := controller.stdout.readline()):
        assert line, "the controller ended before its agent was ready"
    found = containers_of(bench.engine, bench.workshop.state.id)
    running = [one.container_id for one in found if one.status is ContainerStatus.RUNNING]
    assert running
    os.kill(controller.pid, signal.SIGKILL)
    begun = time.monotonic()
    while any((one := bench.engine.inspect(name)) is not None and one.running for name in running):
        assert time.monotonic() - begun < 120, "a container outlived its controller"
    took = time.monotonic() - begun
    controller.wait()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("state", "config-dir", "lock"):
        parser.add_argument(f"--{name}", type=lambda text: str(Path(text).resolve()), required=True)
    parser.add_argument("--digest", required=True)
    parser.add_argument("--engine", choices=("docker", "podman"), default="docker")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--stores", type=int, default=0)
    parser.add_argument("--kills", type=int, default=0)
    asked = parser.parse_args()
    words = [
        f"--state={asked.state}",
        f"--config-dir={asked.config_dir}",
        f"--engine={asked.engine}",
        "--quiet",
    ]
    words = ["run", asked.digest, *words, f"--lock={asked.lock}", "--"]
    bench = open_bench(make_invocation(parse_arguments([*words, *SAY]), dict(os.environ)))
    facts = bench.engine.facts()
    result: dict[str, object] = {
        "cpus": os.cpu_count(),
        "engine": f"{facts.product} {facts.version}",
        "rootless": facts.rootless,
        **measure(bench, asked.runs),
    }
    if asked.stores:
        result["engine store"] = measure_store(bench, asked.stores)
    hostile = f"echo ready; {hostile_plan().argv[2]}"
    builder = str(Path(sys.executable).with_name("builder"))

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen((builder, *words, "sh", "-c", hostile), stdout=subprocess.PIPE)

    gone = sorted(kill(bench, start) for _ in range(asked.kills))
    if gone:
        ninety_nine = gone[max(0, -(-len(gone) * 99 // 100) - 1)]
        result["gone after SIGKILL"] = {
            "runs": len(gone),
            "median": round(statistics.median(gone), 3),
            "p99": round(ninety_nine, 3),
            "most": round(gone[-1], 3),
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
