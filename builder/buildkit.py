"""Build a rendered context with buildx in our build container, and open what came out, re-hashed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from python_on_whales import DockerClient
from python_on_whales.exceptions import DockerException

from backend.runner import Command, Ending, Outcome, run
from builder.build_progress import BuildProgress, OnLine
from builder.build_staging import StagedBuild, stage_build
from builder.image_check import check_image
from builder.store import ContentStore
from images.errors import BuilderError, BuildFailed, HostError, VerifyFailed
from images.oci import OciImage
from images.render import BuildContext
from provenance.layout import list_images, open_image

_INSTANCE: Final = "build"  # the client's home is this build's own, so the name need not be unique
_CALL_SECONDS: Final = 60
_HEALTH_EVERY: Final = 2.0  # seconds between two looks at the build container
_LOST_AFTER: Final = 3  # looks in a row that must fail before the container counts as lost


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTools:
    """What a build is made with.

    ``docker``: the client program. ``buildx``: the plugin, taken by digest out of the build container's
    image. ``endpoint``: ``docker-container://NAME`` or ``unix://PATH``. ``environment``: all that the client
    sees, as PATH and DOCKER_HOST. ``alive``: whether the build container still runs.
    """

    docker: str
    buildx: Path
    endpoint: str
    environment: Mapping[str, str]
    alive: Callable[[], bool]


def build_image(
    context: BuildContext,
    base: OciImage,
    store: ContentStore,
    tools: BuildTools,
    staging: Path,
    *,
    on_line: OnLine,
    cancelled: Callable[[], bool] | None = None,
    deadline: float = 1800.0,
) -> OciImage:
    """Build and check; the image lies in ``staging/output``, a layout of its own, and nothing else knows it.

    ``staging`` is an empty private directory that the caller removes; ``deadline`` in seconds. Raises
    BuildFailed naming the step, its last lines, or that the build container was lost.
    """
    staged = stage_build(context, store, tools.buildx, staging)
    progress = BuildProgress(on_line)
    watch = _Watch(tools.alive, cancelled)
    with _instance(staged, tools):
        outcome = run(
            Command(
                argv=_build_argv(context, base, staged, tools),
                environment=_environment(staged, tools),
                deadline=deadline,
                capture=0,
            ),
            on_stderr=progress.take,
            cancelled=watch.should_end,
        )
    progress.close()
    if not outcome.ok:
        raise _failure(outcome, progress, watch, deadline)
    try:
        found = list_images(staged.output)
        if len(found) != 1:
            raise BuildFailed(f"{len(found)} images came out, expected one", where=str(staged.output))
        image = open_image(staged.output, found[0].digest, context.image.platform)
    except VerifyFailed as broken:
        raise BuildFailed(f"the build's output does not hold: {broken.what}", where=broken.where) from None
    check_image(image, base, context)
    return image


class _Watch:
    """Says when a running build must end: its caller gave up, or its container is gone."""

    def __init__(self, alive: Callable[[], bool], cancelled: Callable[[], bool] | None) -> None:
        self._alive = alive
        self._cancelled = cancelled
        self._next = time.monotonic() + _HEALTH_EVERY
        self._failed = 0

    @property
    def lost(self) -> bool:
        return self._failed >= _LOST_AFTER

    def should_end(self) -> bool:
        if self._cancelled is not None and self._cancelled():
            return True
        if time.monotonic() >= self._next:
            self._failed = 0 if self._is_alive() else self._failed + 1
            self._next = time.monotonic() + _HEALTH_EVERY
        return self.lost

    def _is_alive(self) -> bool:
        try:
            return self._alive()
        except HostError:
            return False  # the engine does not answer either

    def confirm(self) -> None:
        """After a failure: was it the container? buildx's own words for that are not relied upon."""
        if not self.lost and not self._is_alive():
            self._failed = _LOST_AFTER


@contextmanager
def _instance(staged: StagedBuild, tools: BuildTools) -> Iterator[None]:
    """A builder instance in the client's own home: a name for the endpoint; removing it ends nothing."""
    environment = [f"{name}={value}" for name, value in sorted(_environment(staged, tools).items())]
    # The library hands its own environment on and knows no time limit: both are set in front of the client.
    limits = ["timeout", "-k", "5", str(_CALL_SECONDS)]
    client = DockerClient(
        config=staged.client, client_call=["env", "-i", *environment, *limits, tools.docker]
    )
    try:
        client.buildx.create(tools.endpoint, name=_INSTANCE, driver="remote")
    except DockerException as broken:
        raise HostError(
            f"the build container cannot be reached (buildx ended with {broken.return_code})",
            where=tools.endpoint.partition("://")[0],
            hint="builder doctor",
        ) from None
    try:
        yield
    finally:
        _remove_instance(client)


def _remove_instance(client: DockerClient) -> None:
    with contextlib.suppress(DockerException):  # a record in a directory that is removed with the build
        client.buildx.remove(_INSTANCE)


def _environment(staged: StagedBuild, tools: BuildTools) -> dict[str, str]:
    return {
        **tools.environment,
        "DOCKER_CONFIG": str(staged.client),
        "BUILDX_CONFIG": str(staged.client / "buildx"),
        "HOME": str(staged.client),
        "LC_ALL": "C",
        "TZ": "UTC",
    }


def _build_argv(
    context: BuildContext, base: OciImage, staged: StagedBuild, tools: BuildTools
) -> tuple[str, ...]:
    output = {
        "type": "oci",
        "dest": str(staged.output),
        "tar": "false",
        "oci-mediatypes": "true",
        "compression": context.compression,
        "compression-level": str(context.level),
    }
    return (
        tools.docker,
        f"--config={staged.client}",
        "buildx",
        "build",
        f"--builder={_INSTANCE}",
        "--progress=rawjson",
        "--network=none",
        "--provenance=false",
        "--sbom=false",
        f"--platform={context.image.platform}",
        f"--build-arg=SOURCE_DATE_EPOCH={context.epoch}",
        f"--build-context=base=oci-layout://{base.layout}@{base.digest}",
        f"--build-context=artifacts={staged.artifacts}",
        f"--file={staged.context / 'Containerfile'}",
        f"--metadata-file={staged.metadata}",
        "--output=" + ",".join(f"{name}={value}" for name, value in output.items()),
        str(staged.context),
    )


def _failure(outcome: Outcome, progress: BuildProgress, watch: _Watch, deadline: float) -> BuilderError:
    """Why a build ended without an image: lost, too long, cancelled, or a step that failed."""
    watch.confirm()
    step = progress.failed_step
    if watch.lost:
        return BuildFailed(
            "the build container was lost", where=step, hint="builder build", reason="builder-lost"
        )
    if outcome.ending is Ending.TIMED_OUT:
        return BuildFailed(f"not done within {deadline:g} s", where=step, reason="build-deadline")
    if outcome.ending is Ending.CANCELLED:
        return BuildFailed("cancelled", where=step, reason="cancelled")
    if outcome.ending in (Ending.NOT_FOUND, Ending.NOT_STARTED):
        return HostError(f"the docker client cannot be started: {outcome.detail}", hint="builder doctor")
    lines = "".join(f"\n  {line}" for line in progress.last_lines())
    return BuildFailed(
        f"a step failed{lines}" if step else f"buildx ended with exit code {outcome.exit_code}{lines}",
        where=step,
        hint="builder build --verbose",
        reason="build-step",
    )
