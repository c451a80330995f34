"""Build a rendered context with buildx in our build container, and open what came out, re-hashed."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from backend.runner import Command, Ending, Outcome, run
from backend.tools import BuildContainer
from builder.building.image_check import check_image
from builder.building.progress import BuildProgress, OnLine
from builder.building.staging import StagedBuild, stage_build
from builder.storage.store import ContentStore
from images.errors import BuilderError, BuildFailed, HostError, VerifyFailed
from images.oci import OciImage
from images.render import BuildContext
from provenance.layout import list_images, open_image

_INSTANCE: Final = "build"  # the client's home is this build's own, so the name need not be unique
_CALL_SECONDS: Final = 60
_CLIENT: Final = "docker"  # found on the PATH that the command line chose; no daemon is needed for a socket


def build_image(
    context: BuildContext,
    base: OciImage,
    *,
    store: ContentStore,
    container: BuildContainer,
    buildx: Path,
    staging: Path,
    on_line: OnLine,
    cancelled: Callable[[], bool] | None = None,
    deadline: float = 1800.0,
    target: str = "",
) -> OciImage:
    """Build and check; the image lies in ``staging/output``, a layout of its own, and nothing else knows it.

    ``buildx``: the plugin, from :func:`builder.building.buildx.take_buildx`. ``staging``: an empty private
    directory that the caller removes. ``on_line`` gets progress as plain lines. ``deadline`` in seconds.
    ``target``: a stage, whose image is given as it is instead, compared with nothing. BuildFailed names the
    step and its last lines, or says that the build container was lost.
    """
    _need_client(container)
    staged = stage_build(context, base, store, buildx, staging)
    progress = BuildProgress(on_line)
    watch = _Watch(container, cancelled)
    with _instance(staged, container):
        outcome = run(
            Command(
                argv=_build_argv(context, base, staged, target),
                environment=_environment(staged, container),
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
    if not target:
        check_image(image, base, context)
    return image


class _Watch:
    """Says when a running build must end: its caller gave up, or its container is gone."""

    def __init__(self, container: BuildContainer, cancelled: Callable[[], bool] | None) -> None:
        self._container = container
        self._cancelled = cancelled

    @property
    def lost(self) -> bool:
        """Asked of the container itself once a build has failed: buildx hears of its end before the engine's
        client does, and neither its words nor its silence are read."""
        return not self._container.answers()

    def should_end(self) -> bool:
        return not self._container.is_running() or (self._cancelled is not None and self._cancelled())


def _need_client(container: BuildContainer) -> None:
    """Podman hosts too: buildx is a plugin of this client, which then talks to a socket and to no daemon."""
    if shutil.which(_CLIENT, path=container.environment.get("PATH", "")) is None:
        raise HostError(
            f"the {_CLIENT} client is not on the PATH (the client alone: no daemon is needed)",
            where=_CLIENT,
            hint="builder doctor",
        )


@contextmanager
def _instance(staged: StagedBuild, container: BuildContainer) -> Iterator[None]:
    """A builder instance in the client's own home: a name for the endpoint; removing it ends nothing."""
    # Heavy, and only a build that really runs needs it: a known image is answered without.
    from python_on_whales import DockerClient  # noqa: PLC0415
    from python_on_whales.exceptions import DockerException  # noqa: PLC0415

    environment = [f"{name}={value}" for name, value in sorted(_environment(staged, container).items())]
    # The library hands its own environment on and knows no time limit: both are set in front of the client.
    limits = ["timeout", "-k", "5", str(_CALL_SECONDS)]
    client = DockerClient(config=staged.client, client_call=["env", "-i", *environment, *limits, _CLIENT])
    try:
        client.buildx.create(container.endpoint, name=_INSTANCE, driver="remote")
    except (DockerException, ValueError) as broken:  # ValueError: the library could not read what buildx said
        ended = f"ended with {broken.return_code}" if isinstance(broken, DockerException) else "made no sense"
        raise HostError(
            f"the build container cannot be reached (buildx {ended})",
            where=container.endpoint.partition("://")[0],
            hint="builder doctor",
        ) from None
    try:
        yield
    finally:
        with contextlib.suppress(DockerException):  # a record in a directory that is removed with the build
            client.buildx.remove(_INSTANCE)


def _environment(staged: StagedBuild, container: BuildContainer) -> dict[str, str]:
    return {
        **container.environment,
        "DOCKER_CONFIG": str(staged.client),
        "BUILDX_CONFIG": str(staged.client / "buildx"),
        "HOME": str(staged.client),
        "LC_ALL": "C",
        "TZ": "UTC",
    }


def _build_argv(
    context: BuildContext, base: OciImage, staged: StagedBuild, target: str = ""
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
        _CLIENT,
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
        f"--build-context=base=oci-layout://{staged.base}@{base.digest}",
        f"--build-context=artifacts={staged.artifacts}",
        f"--file={staged.context / 'Containerfile'}",
        *((f"--target={target}",) if target else ()),
        "--output=" + ",".join(f"{name}={value}" for name, value in output.items()),
        str(staged.context),
    )


def _failure(outcome: Outcome, progress: BuildProgress, watch: _Watch, deadline: float) -> BuilderError:
    """Why a build ended without an image: lost, too long, cancelled, or a step that failed."""
    step, running = progress.failed_step, ", ".join(progress.running_steps())
    if watch.lost:
        return BuildFailed(
            "the build container was lost",
            where=step or running,
            hint="builder build",
            reason="builder-lost",
        )
    if outcome.ending is Ending.TIMED_OUT:
        return BuildFailed(
            f"not done within {deadline:g} s; still running: {running or 'no step'}",
            hint="builder build --verbose",
            reason="build-deadline",
        )
    if outcome.ending is Ending.CANCELLED:
        return BuildFailed("cancelled", where=step or running, reason="cancelled")
    if outcome.ending in (Ending.NOT_FOUND, Ending.NOT_STARTED):
        return HostError(f"the docker client cannot be started: {outcome.detail}", hint="builder doctor")
    lines = "".join(f"\n  {line}" for line in progress.last_lines())
    return BuildFailed(
        f"a step failed{lines}" if step else f"buildx ended with exit code {outcome.exit_code}{lines}",
        where=step,
        hint="builder build --verbose",
        reason="build-step",
    )
