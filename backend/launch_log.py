"""One launch in the journal: its intent, each boundary that it crosses, and the signed record at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from backend.journal import Boundary, Intent, Journal
from backend.plan import LaunchPlan
from backend.records import LaunchRecord, Observed, sign_record
from provenance.keys import PrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchLog:
    """Where one launch is written down. ``launcher_id``: a URI, as the policy's ``launcher_ids`` name it."""

    journal: Journal
    signer: PrivateKey
    launcher_id: str
    version: str
    now: Callable[[], datetime]
    plan: LaunchPlan
    crossed: Callable[[Boundary], None] | None = None

    def intend(self, lease_id: str) -> None:
        """Before anything exists."""
        plan, request, facts = self.plan, self.plan.request, self.plan.admitted.facts
        self.journal.intend(
            Intent(
                launch_id=plan.launch_id,
                run_id=request.run_id,
                step=request.step,
                scope=request.scope,
                launch_class=request.launch_class.value,
                lease_id=lease_id,
                container_name=plan.container.name,
                image_digest=plan.admitted.image.digest,
                product=facts.product,
                endpoint=facts.endpoint,
                mode=plan.admitted.mode.value,
            ),
            self.now(),
        )
        self._tell(Boundary.INTENDED)

    def advance(
        self, to: Boundary, *, container_id: str = "", exit_code: int | None = None, detail: str = ""
    ) -> None:
        """Before the effect that follows this boundary."""
        self.journal.advance(
            self.plan.launch_id,
            to,
            self.now(),
            container_id=container_id,
            exit_code=exit_code,
            detail=detail,
        )
        self._tell(to)

    def sign(self, observed: Observed) -> LaunchRecord:
        """The record, signed and kept: the last thing of a launch."""
        record = sign_record(
            self.plan, observed, self.signer, launcher_id=self.launcher_id, version=self.version
        )
        self.journal.advance(self.plan.launch_id, Boundary.RECORDED, self.now(), bundle=record.bundle.raw)
        return record

    def _tell(self, boundary: Boundary) -> None:
        if self.crossed is not None:
            self.crossed(boundary)
