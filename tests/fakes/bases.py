"""Small base images for tests: what a base must bring, and the layers that carry it."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

from images.accounts import Accounts
from images.basefacts import BUILD_PROGRAMS, RUN_PROGRAMS, BaseFacts
from images.digests import Digest
from images.oci import MEDIA_CONFIG, MEDIA_LAYER_ZSTD, MEDIA_MANIFEST, OciImage, parse_settings
from provenance.layout import open_image
from provenance.layout_writing import add_manifest, init_layout, write_blob
from tests.fakes.layouts import compressed

PASSWD = b"root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
GROUP = b"root:x:0:\nnogroup:x:65534:\n"
PROGRAMS = tuple(dict.fromkeys((*RUN_PROGRAMS, *BUILD_PROGRAMS, "env", "bash", "catatonit")))

Member = tuple[str, bytes | str | None, int]  # path; bytes = file, text = link, None = directory; mode


def programs(without: tuple[str, ...] = ()) -> list[Member]:
    """A base's first layer: merged /usr, every program that the plan needs, accounts."""
    names = [name for name in PROGRAMS if name not in without]
    return [
        ("bin", "usr/bin", 0o777),
        ("etc", None, 0o755),
        ("etc/group", GROUP, 0o644),
        ("etc/passwd", PASSWD, 0o644),
        ("usr", None, 0o755),
        ("usr/bin", None, 0o755),
        ("lib64", "usr/lib64", 0o777),
        ("usr/lib64/ld-linux-x86-64.so.2", "../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", 0o777),
        ("usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", b"\x7fELF", 0o755),
        *((f"usr/bin/{name}", b"\x7fELF", 0o755) for name in names),
    ]


def layer_tar(members: list[Member]) -> bytes:
    """The members as a tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content, mode in members:
            member = tarfile.TarInfo(path)
            member.mode = mode
            if content is None:
                member.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
            data = content if isinstance(content, bytes) else b""
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def make_base(layout: Path, *layers: list[Member], config: dict[str, object] | None = None) -> OciImage:
    """An image of these layers in ``layout``, opened."""
    init_layout(layout)
    tars = [layer_tar(members) for members in layers or (programs(),)]
    blobs = [write_blob(layout, compressed(tar, MEDIA_LAYER_ZSTD), MEDIA_LAYER_ZSTD) for tar in tars]
    settings = {
        "architecture": "amd64",
        "os": "linux",
        "config": config or {},
        "rootfs": {"type": "layers", "diff_ids": [str(Digest.of(tar)) for tar in tars]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "config": write_blob(layout, json.dumps(settings).encode(), MEDIA_CONFIG).to_json(),
        "layers": [blob.to_json() for blob in blobs],
    }
    found = add_manifest(layout, json.dumps(manifest).encode(), media_type=MEDIA_MANIFEST)
    return open_image(layout, found.digest)


def base_facts(config: dict[str, object] | None = None) -> BaseFacts:
    """The facts of such a base, without a layout."""
    raw = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": config or {"Env": ["PATH=/usr/bin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": []},
        }
    ).encode()
    return BaseFacts(  # noqa: S604  (the path of a shell)
        accounts=Accounts(PASSWD, GROUP),
        init="/usr/bin/catatonit",
        shell="/bin/bash",
        settings=parse_settings(raw, "base"),
    )
