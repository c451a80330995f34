"""A small image that can really be launched: a Debian base, our accounts and directories, scripted CLIs."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

import zstandard

from images.accounts import Accounts, with_accounts
from images.config import AgentName, UserAccount
from images.digests import Digest, canonical_json
from images.launchers import launcher_path
from images.oci import MEDIA_CONFIG, MEDIA_LAYER_ZSTD, MEDIA_MANIFEST, OciImage
from provenance.layout import open_image, open_layer
from provenance.layout_writing import add_manifest, write_blob

USER = UserAccount("agent", 1000, 1000)
ENVIRONMENT = (
    "HOME=/home/agent",
    "LANG=C.UTF-8",
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
)
# Claude Code's own refusal, in its words.
_CLAUDE_AS_ROOT = """\
if [ "$1" = --dangerously-skip-permissions ]; then
    if [ "$(id -u)" = 0 ]; then
        echo "$1 cannot be used with root/sudo privileges for security reasons" >&2
        exit 1
    fi
    echo 'Not logged in · Please run /login'
    exit 1
fi
"""


def scripted_launchers(versions: Mapping[AgentName, str]) -> dict[AgentName, str]:
    """One shell script for each agent, that knows ``--version`` and what Claude Code does as root."""
    words = {
        AgentName.CLAUDE_CODE: "{} (Claude Code)",
        AgentName.OPENCODE: "{}",
        AgentName.PI: "{}",
    }
    return {
        name: "#!/bin/sh\n"
        + (_CLAUDE_AS_ROOT if name is AgentName.CLAUDE_CODE else "")
        + f'if [ "$1" = --version ]; then echo "{words[name].format(version)}"; exit 0; fi\n'
        + f'echo "{name.value} was given: $*"\n'
        for name, version in versions.items()
    }


def launchable_on(
    base: OciImage, launchers: Mapping[AgentName, str], *, init: str = "/usr/bin/catatonit"
) -> OciImage:
    """The base with one layer of ours, in the same layout."""
    tar = _layer(_accounts(base), launchers)
    layout = base.layout
    blob = write_blob(layout, zstandard.ZstdCompressor(level=3).compress(tar), MEDIA_LAYER_ZSTD)
    settings = write_blob(
        layout,
        canonical_json(
            {
                "architecture": base.platform.architecture,
                "os": base.platform.os,
                "config": {
                    "User": f"{USER.uid}:{USER.gid}",
                    "Env": list(ENVIRONMENT),
                    "Entrypoint": [init, "--"],
                    "Cmd": ["/bin/sh"],
                    "WorkingDir": "/workspace",
                },
                "rootfs": {
                    "type": "layers",
                    "diff_ids": [*map(str, base.settings.diff_ids), str(Digest.of(tar))],
                },
                "history": [],
            }
        ),
        MEDIA_CONFIG,
    )
    layers = [*base.manifest.layers, blob]
    manifest = canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": MEDIA_MANIFEST,
            "config": settings.to_json(),
            "layers": [layer.to_json() for layer in layers],
        }
    )
    return open_image(layout, add_manifest(layout, manifest, media_type=MEDIA_MANIFEST).digest)


def _accounts(base: OciImage) -> Accounts:
    found: dict[str, bytes] = {}
    for number in range(len(base.manifest.layers)):
        with open_layer(base, number) as file, tarfile.open(fileobj=file, mode="r|") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                data = (
                    tar.extractfile(member)
                    if name in ("etc/passwd", "etc/group") and member.isreg()
                    else None
                )
                if data is not None:
                    found[name] = data.read()
    return with_accounts(Accounts(found["etc/passwd"], found["etc/group"]), USER, "/bin/sh")


def _layer(accounts: Accounts, launchers: Mapping[AgentName, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, owner in (("workspace", 1000), ("source", 0), ("home/agent", 1000)):
            member = tarfile.TarInfo(path)
            member.type, member.mode, member.uid, member.gid = tarfile.DIRTYPE, 0o755, owner, owner
            tar.addfile(member)
        files = [("etc/passwd", 0o644, accounts.passwd), ("etc/group", 0o644, accounts.group)]
        files += [
            (launcher_path(name).lstrip("/"), 0o755, text.encode())
            for name, text in sorted(launchers.items())
        ]
        for path, mode, content in files:
            member = tarfile.TarInfo(path)
            member.mode, member.size = mode, len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()
