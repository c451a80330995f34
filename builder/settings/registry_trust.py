"""What settings.toml and the clock say of trust in registries: whose word counts, how old is enough."""

from __future__ import annotations

from builder.resolve.release_age import AgeGate
from builder.resolve.vouching import Trust
from builder.settings.settings_file import read_npm_keys, read_publishers
from builder.workshop import Workshop


def trust_of(workshop: Workshop) -> Trust:
    """Whose word counts, and how old a version must be: settings.toml says, and the clock."""
    return Trust(
        keys=read_npm_keys(workshop.settings),
        publishers=read_publishers(workshop.settings),
        gate=age_gate(workshop),
        on_note=workshop.reporter.warn,
    )


def age_gate(workshop: Workshop) -> AgeGate | None:
    """What settings.toml asks of the age of versions; None when it asks for nothing."""
    settings = workshop.settings
    if settings.min_release_age is None:
        return None
    return AgeGate(settings.min_release_age, workshop.now(), settings.min_release_age_except)
