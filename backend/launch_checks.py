"""What must hold between admission and intent: the same engine, the same run, the planned image loaded."""

from __future__ import annotations

from backend.admission import AdmittedImage
from backend.containers import LoadedImage
from backend.engines.protocol import Engine
from backend.journal import Journal
from backend.plan import LaunchPlan
from images.errors import LaunchReason, LaunchRefused


def check_same_engine(engine: Engine, admitted: AdmittedImage) -> None:
    """The engine that was probed and admitted is the one that is about to launch."""
    facts = engine.facts()
    if facts != admitted.facts:
        raise LaunchRefused(
            LaunchReason.ENGINE_IDENTITY,
            f"{facts.product} {facts.version} at {facts.endpoint} is not the engine that was probed",
            hint="builder doctor",
        )


def check_same_run(journal: Journal, plan: LaunchPlan) -> None:
    """A run keeps its first step's image, engine and mode: replacing them is an operator's act, a new run."""
    facts = plan.admitted.facts
    now = (plan.admitted.image.digest, facts.product, facts.endpoint, plan.admitted.mode.value)
    for entry in journal.entries(plan.request.run_id):
        intent = entry.intent
        if (intent.image_digest, intent.product, intent.endpoint, intent.mode) != now:
            raise LaunchRefused(
                LaunchReason.RUN_PINNED,
                f"step {intent.step} of run {intent.run_id!r} used image {intent.image_digest} on"
                f" {intent.product} at {intent.endpoint} in {intent.mode} mode; this step would not",
                where=plan.launch_id,
                hint="builder run --new-run, or another run id",
            )


def check_image_id(plan: LaunchPlan, found: LoadedImage) -> None:
    """What the engine has under the image's digest is what was planned."""
    planned = plan.container.image
    if (found.id, found.id_kind) != (planned.id, planned.id_kind):
        raise LaunchRefused(
            LaunchReason.IMAGE_ID,
            f"the engine has {found.id_kind.value} id {found.id},"
            f" planned {planned.id_kind.value} {planned.id}",
            where=str(planned.image.digest),
            hint="builder doctor",
        )
