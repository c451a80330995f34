"""`builder doctor`: what this host can enforce, with the remedy for what it cannot."""

from __future__ import annotations

from backend.journal import Journal
from backend.probe import ProbeState
from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop
from builder.leftovers import remove_leftovers
from builder.probing import probe_engine
from images.errors import ExitCode


def run(invocation: Invocation) -> Result:
    """Exit 3 when required mode cannot hold on this host, whatever a policy accepts."""
    workshop = open_workshop(invocation)
    engine = workshop.connect()
    with Journal.open(workshop.state.journal, workshop.state.id) as journal:
        remove_leftovers(workshop, engine, journal, invocation.now)
    probe = probe_engine(workshop, engine, fresh=invocation.options.fresh)
    for line in probe.lines:
        remedy = f" -> {line.remedy}" if line.remedy and line.state is not ProbeState.HELD else ""
        invocation.reporter.say(f"{line.state.value:<12} {line.name.value}: {line.detail}{remedy}")
    refused = [line for line in probe.lines if line.state is ProbeState.NOT_HELD]
    document: dict[str, object] = {
        "engine": probe.facts.product,
        "version": probe.facts.version,
        "rootless": probe.facts.rootless,
        "required_mode": not refused,
        "lines": [
            {
                "name": line.name.value,
                "state": line.state.value,
                "detail": line.detail,
                "remedy": line.remedy,
            }
            for line in probe.lines
        ],
    }
    return Result(document=document, code=ExitCode.HOST if refused else ExitCode.DONE)
