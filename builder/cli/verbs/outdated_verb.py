"""`builder outdated`: which pins have newer versions, are gone, or stand on something that is not here."""

from __future__ import annotations

from builder.cli.documents.locks import OutdatedDocument, PinDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop
from builder.daily.updating import ask_base, base_problem, pin_names, standings
from builder.locking import Project, open_project, stale_reasons
from builder.resolve.debian import TOOLCHAIN
from builder.resolve.newest import BASE, PinStanding, Standing
from builder.settings.settings_file import Settings
from builder.workshop import Workshop
from images.errors import NetworkFailed, UsageError


def run(invocation: Invocation) -> Result[OutdatedDocument]:
    """A line for each pin that an upgrade would move: name, pinned, newest. Nothing when all are current."""
    project = open_project(invocation.options.config)
    workshop = open_workshop(invocation)
    names = frozenset(pin_names(project.config)) - {BASE}
    pins = (*standings(workshop, project.config, names, project.lock_path), _base(workshop, project))
    warnings = [*warnings_of(pins), *_of_lock(project, workshop.settings)]
    if problem := base_problem(project.config, workshop.state.layout):
        warnings.append(f"image.base: not whole in this state: {problem}")
    for one in pins:
        invocation.reporter.say(f"{one.place}: {one.pinned}, {words_for(one)}")
    for warning in warnings:
        invocation.reporter.warn(warning)
    if any(one.target for one in pins):
        invocation.reporter.say("to move all of them: builder lock --upgrade")
    document = OutdatedDocument(
        outdated=any(one.target for one in pins),
        pins=tuple(pin_document(one) for one in pins),
        warnings=tuple(warnings),
    )
    return Result(
        line="\n".join(f"{one.name} {one.pinned} {one.target}" for one in pins if one.target),
        document=document,
    )


def _base(workshop: Workshop, project: Project) -> PinStanding:
    """A registry that cannot be asked about the base must not hide what is known of everything else."""
    try:
        return ask_base(workshop, project.config)
    except NetworkFailed as broken:
        pinned = str(project.config.base.digest or project.config.base)
        return PinStanding(
            BASE, "image.base", pinned, "", Standing.UNKNOWN, note=f"not asked about: {broken}"
        )


def pin_document(one: PinStanding) -> PinDocument:
    """One pin for programs; ``newest`` is null when nothing can be proposed."""
    return PinDocument(
        name=one.name,
        place=one.place,
        pinned=one.pinned,
        newest=one.newest or None,
        standing=one.standing,
        deprecated=one.deprecated,
        note=one.note,
    )


def words_for(one: PinStanding) -> str:
    """How one pin stands, for people."""
    match one.standing:
        case Standing.CURRENT:
            return "the newest"
        case Standing.OUTDATED:
            return f"newest {one.newest}"
        case Standing.AHEAD:
            return f"newer than {one.newest}, the latest of its publisher"
        case Standing.GONE:
            return f"gone; newest {one.newest}" if one.newest else "gone"
        case Standing.UNKNOWN:
            return one.note or "nothing to compare it with"


def warnings_of(pins: tuple[PinStanding, ...]) -> list[str]:
    """What an operator should see although he asks for newer versions only."""
    # Of the toolchain the note is no warning: it says on its own line why nothing is known.
    notes = [f"{one.place}: {one.note}" for one in pins if one.note and one.name != TOOLCHAIN]
    return notes + [
        f"{one.place}: {one.pinned} is {'gone upstream' if one.standing is Standing.GONE else 'deprecated'}"
        for one in pins
        if one.deprecated or (one.standing is Standing.GONE and one.place != "image.base")
    ]


def _of_lock(project: Project, settings: Settings) -> list[str]:
    """A lock that is missing, damaged or stale: a warning here, since nothing is made of it."""
    try:
        changed = stale_reasons(project, settings)
    except UsageError as broken:
        return [f"{broken} (builder lock makes it)"]
    return [f"{project.lock_path} is stale: {'; '.join(changed)}"] if changed else []
