"""Images that the program works with, on hand: what is named with a registry is pulled when first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from backend.commands import NO_FEED, Feed
from backend.containers import LoadedImage, Purpose
from backend.engines.protocol import Engine
from backend.journal import Journal
from backend.ownership import Owner, hold_lease
from backend.runner import Outcome
from backend.tools import buildkit_version
from builder.leftovers import remove_leftovers
from builder.report import Progress as StepProgress
from builder.resolve.exchange import Progress, Resolver, in_container
from builder.resolve.pulling import BUILDER_TOML, Place, pull
from builder.roles import Role
from builder.settings.access import read_secrets
from builder.settings.settings_file import SETTINGS_NAME, GivenImage
from builder.workshop import Workshop, given_image, load_image, made_image, recipe, tool_digest
from images.config import BaseReference
from images.digests import Digest
from images.errors import NetworkFailed, NetworkReason, PinError, UsageError, VerifyFailed
from images.lock import Lock, Recipe
from images.oci import MEDIA_INDEX, OciImage, Platform
from provenance.layout import list_images, open_image, read_blob
from provenance.layout_writing import add_manifest, import_image

PROXY_VARIABLES = frozenset({"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"})


def provide(workshop: Workshop, role: Role) -> OciImage:
    """The image that plays a role, re-hashed: of settings.toml, pulled if it must be, else of bootstrap.

    Raises UsageError when there is none, PinError for a digest that no longer exists, NetworkFailed.
    """
    given = given_image(workshop.settings, role)
    if given is None:
        return _open_made(workshop, tool_digest(workshop, role), role)
    image = find(workshop, given.digest)
    if image is None:
        _bring(workshop, given, role)
        image = _open_pulled(workshop, given, role)
    return image


def provide_base(workshop: Workshop, lock: Lock, platform: Platform) -> OciImage:
    """The base of a lock, re-hashed; pulled by its digest when the name in the lock has a registry."""
    wanted = lock.base.image(platform).manifest
    image = find(workshop, wanted)
    if image is not None:
        return image
    reference = BaseReference(lock.base.name, lock.base.requested, lock.base.tag)
    if reference.registry is None:
        raise UsageError(
            f"the base of the lock is not whole in this state, and its name has no registry: {reference}",
            where=str(wanted),
            hint="builder bootstrap",
        )
    with (
        workshop.reporter.step(f"pull the base {reference}") as step,
        open_resolver(workshop, step) as resolver,
    ):
        pull(
            reference,
            (platform,),
            resolver,
            workshop.state.layout,
            replace(BUILDER_TOML, command="builder build"),
        )
    try:
        return open_image(workshop.state.layout, wanted, platform)
    except VerifyFailed as broken:
        raise PinError(
            f"what the registry has under {reference} is not the base of the lock: {broken.what}",
            where=str(wanted),
            hint="builder lock",
        ) from None


def reference(workshop: Workshop, role: Role) -> BaseReference:
    """An image as builder.toml names it. UsageError when there is none."""
    given = given_image(workshop.settings, role)
    if given is not None and given.source is not None:
        return given.source
    name = "debian-minimal" if given is None and role is Role.BASE else str(role)
    return BaseReference(name, tool_digest(workshop, role))


def find(workshop: Workshop, digest: Digest) -> OciImage | None:
    """The image for this machine if the layout has it whole; an index digest means its image for us."""
    try:
        return open_image(workshop.state.layout, digest, workshop.platform)
    except VerifyFailed:
        return None


def lock_recipe(workshop: Workshop) -> Recipe:
    """How a lock made now says that images are built: the BuildKit version is that of the build container."""
    if workshop.settings.build_container is None:
        return recipe()
    image = provide(workshop, Role.BUILD_CONTAINER)
    engine = workshop.connect()
    loaded = load_image(workshop, engine, image, "build container")
    with hold_lease(workshop.state.leases, workshop.state.id) as owner:
        return replace(recipe(), buildkit=buildkit_version(engine, loaded, owner.labels(Purpose.PROBE)))


def require_buildkit(
    workshop: Workshop, engine: Engine, loaded: LoadedImage, owner: Owner, wanted: str
) -> None:
    """A build container from elsewhere must hold the BuildKit that the lock names. UsageError otherwise."""
    if workshop.settings.build_container is None:
        return  # made here from pins, or checked against their digest: it is the version of the pins
    found = buildkit_version(engine, loaded, owner.labels(Purpose.PROBE))
    if found != wanted:
        raise UsageError(
            f"the lock is for BuildKit {wanted}, and the build container holds {found}",
            where=f"{SETTINGS_NAME}: build_container = {workshop.settings.build_container}",
            hint="builder lock",
            reason="stale-lock",
        )


@contextmanager
def open_resolver(workshop: Workshop, step: StepProgress, *, starter: bool = False) -> Iterator[Resolver]:
    """The resolver over its container; the engine is reached only when there is something to ask.

    ``starter``: the one that bootstrap made, whatever settings.toml says, to pull another with.
    """
    secrets = read_secrets(workshop.settings, workshop.given)

    def run(job: bytes, result: Path, on_stderr: Callable[[bytes], None], feed: Feed = NO_FEED) -> Outcome:
        tool = _starter(workshop) if starter else provide(workshop, Role.RESOLVER)
        engine = workshop.connect()
        with Journal.open(workshop.state.journal, workshop.state.id) as journal:
            # A resolver whose controller was killed goes on by itself, with a network and its secrets.
            remove_leftovers(workshop, engine, journal, workshop.now)
        image = load_image(workshop, engine, tool, "resolver")
        return in_container(engine, image, owner.labels(Purpose.RESOLVE))(job, result, on_stderr, feed)

    def on_progress(progress: Progress) -> None:
        step.update(str(progress))

    with (
        hold_lease(workshop.state.leases, workshop.state.id) as owner,
        workshop.state.staging("resolve") as staging,
    ):
        try:
            yield Resolver(
                run=run,
                secrets=secrets,
                store=workshop.store,
                staging=staging,
                on_progress=on_progress,
            )
        except NetworkFailed as failed:
            _mention_proxy(workshop, failed)
            raise


def _mention_proxy(workshop: Workshop, failed: NetworkFailed) -> None:
    """Whoever has a proxy in the environment alone would look for the fault elsewhere."""
    settings = workshop.settings
    if failed.reason != NetworkReason.UNREACHABLE or settings.proxy or settings.proxy_file:
        return
    if name := next((one for one in workshop.given if one.upper() in PROXY_VARIABLES), ""):
        failed.hint = f"{name} of your environment is not used: write proxy into {SETTINGS_NAME}, then again"


def take_from(workshop: Workshop, source: Path) -> None:
    """Copy what settings.toml gives and the state lacks out of another layout, re-hashed; without network."""
    layout = workshop.state.layout
    try:
        list_images(source)
    except VerifyFailed as broken:
        raise UsageError(
            f"not an OCI layout: {broken.what}",
            where=str(source),
            hint="builder bootstrap --from LAYOUT, a directory with oci-layout and index.json",
        ) from None
    for role in Role:
        given = given_image(workshop.settings, role)
        if given is None or find(workshop, given.digest) is not None:
            continue
        try:
            image = import_image(source, given.digest, layout, workshop.platform)
            if image.digest != given.digest:  # an index: its own bytes are what settings.toml names
                add_manifest(layout, read_blob(source, given.digest), media_type=MEDIA_INDEX)
        except VerifyFailed as broken:
            raise UsageError(
                f"the {_name(role)} cannot be taken from this layout: {broken}",
                where=str(source),
                hint=f"copy {given} there, whole, and type it again",
            ) from None


def missing_roles(workshop: Workshop) -> frozenset[Role]:
    """What bootstrap must make: what settings.toml does not give, and a resolver if one is needed to pull."""
    given = {role: given_image(workshop.settings, role) for role in Role}
    missing = {role for role, image in given.items() if image is None}
    lacking = {
        role
        for role, image in given.items()
        if image and image.source and find(workshop, image.digest) is None
    }
    resolver = given[Role.RESOLVER]
    if lacking and (resolver is None or Role.RESOLVER in lacking):
        missing.add(Role.RESOLVER)
    return frozenset(missing)


def _bring(workshop: Workshop, given: GivenImage, role: Role) -> None:
    place = _place(role)
    if given.source is None:
        raise UsageError(
            f"the {_name(role)} is not whole in this state, and no registry is named that has it",
            where=f"{place.path} = {given}",
            hint=f"name its registry in {SETTINGS_NAME}, or: builder bootstrap --from LAYOUT",
        )
    with (
        workshop.reporter.step(f"pull the {_name(role)} {given}") as step,
        open_resolver(workshop, step, starter=role is Role.RESOLVER) as resolver,
    ):
        pull(given.source, (workshop.platform,), resolver, workshop.state.layout, place)


def _open_pulled(workshop: Workshop, given: GivenImage, role: Role) -> OciImage:
    try:
        return open_image(workshop.state.layout, given.digest, workshop.platform)
    except VerifyFailed as broken:
        raise PinError(
            f"{given} cannot be the {_name(role)} on {workshop.platform}: {broken.what}",
            where=_place(role).path,
            hint=_place(role).another,
        ) from None


def _open_made(workshop: Workshop, digest: Digest, role: Role) -> OciImage:
    try:
        return open_image(workshop.state.layout, digest)
    except VerifyFailed as broken:
        raise UsageError(
            f"the {_name(role)} is not whole in this state: {broken.what}",
            where=str(digest),
            hint="builder bootstrap",
        ) from None


def _starter(workshop: Workshop) -> OciImage:
    digest = made_image(workshop, Role.RESOLVER)
    if digest is None:
        raise UsageError(
            f"the resolver that {SETTINGS_NAME} names is not here yet, nor is one that could pull it",
            where=f"{_place(Role.RESOLVER).path} = {workshop.settings.resolver}",
            hint="builder bootstrap",
        )
    return _open_made(workshop, digest, Role.RESOLVER)


def _place(role: Role) -> Place:
    return Place(SETTINGS_NAME, f"{SETTINGS_NAME}: {role.replace('-', '_')}", "builder bootstrap")


def _name(role: Role) -> str:
    return role.replace("-", " ")
