"""An export, held against in-toto's own verifier: it passes as it is, and nothing of it can be changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.digests import Digest
from images.errors import KeyUnusable, UsageError
from provenance.intoto import LAYOUT_NAME, MANIFEST, export_in_toto, require_made_by_keys
from provenance.signers import Identity
from provenance.verify import VerifiedImage
from tests.attacks import Position, attack
from tests.fakes.evidence import key
from tests.fakes.proved import proved_world

IN_TOTO = Path(sys.executable).with_name("in-toto-verify")


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> VerifiedImage:
    return proved_world(tmp_path_factory.mktemp("world")).admit().require()


@pytest.fixture(scope="module")
def exported(verified: VerifiedImage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "steps"
    names = export_in_toto(verified, folder, builder=key("builder"), verifier=key("verifier"))
    assert sorted(path.name for path in folder.iterdir()) == list(names)
    (folder.parent / "verifier.pub").write_bytes(key("verifier").public.pem)
    (folder.parent / "builder.pub").write_bytes(key("builder").public.pem)
    return folder


@pytest.fixture
def steps(exported: Path, tmp_path: Path) -> Path:
    """A copy to do damage to."""
    shutil.copytree(exported, tmp_path / "steps")
    for name in ("verifier.pub", "builder.pub"):
        shutil.copy(exported.parent / name, tmp_path)
    return tmp_path / "steps"


def passes(steps: Path, signer: str = "verifier") -> bool:
    """What the real program says, in a process of its own."""
    words = ["--layout", LAYOUT_NAME, "--verification-keys", f"../{signer}.pub", "--link-dir", "."]
    done = subprocess.run([IN_TOTO, *words], cwd=steps, capture_output=True, text=True, check=False)
    (steps / "everything-is-here.link").unlink(missing_ok=True)  # what its inspection leaves
    assert "Traceback" not in done.stderr
    return done.returncode == 0


def test_in_totos_own_verifier_passes_it(steps: Path, verified: VerifiedImage) -> None:
    assert passes(steps)
    assert not passes(steps, "builder")
    assert verified.image.digest == Digest.of((steps / MANIFEST).read_bytes())


@attack(25, by=Position.LAYOUT_WRITER)
def test_any_file_changed_or_missing_is_refused(steps: Path) -> None:
    """Also the final product, which rules that only MATCH let pass; also each link and the layout."""
    for path in sorted(steps.iterdir()):
        original = path.read_bytes()
        path.write_bytes(original[:-2] + bytes([original[-2] ^ 1]) + original[-1:])
        assert not passes(steps), f"{path.name} was changed"
        path.unlink()
        assert not passes(steps), f"{path.name} was taken away"
        path.write_bytes(original)
    (steps / "more.json").write_text("{}")
    assert not passes(steps), "a file was added"
    (steps / "more.json").unlink()
    assert passes(steps)


def products(link: dict[str, Any]) -> None:
    for hashes in link["products"].values():
        hashes["sha256"] = "0" * 64


def materials(link: dict[str, Any]) -> None:
    for hashes in link["materials"].values():
        hashes["sha256"] = "0" * 64


def nothing_made(link: dict[str, Any]) -> None:
    link["products"] = {}


@pytest.mark.parametrize("change", [products, materials, nothing_made])
def test_a_link_that_the_builder_signs_anew_does_not_fit_the_others(
    steps: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    """With the builder's key stolen: what the verifier saw and signed still has to match."""
    from in_toto.models.link import Link  # noqa: PLC0415
    from in_toto.models.metadata import Metablock  # noqa: PLC0415
    from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]  # noqa: PLC0415

    (path,) = steps.glob("scan.*.link")
    link = json.loads(path.read_text())["signed"]
    change(link)
    block = Metablock(signed=Link.read(link))
    block.create_signature(CryptoSigner(key("builder").key))
    path.write_text(json.dumps(block.to_dict()))
    assert not passes(steps)


def test_only_the_keys_that_proved_it_can_export(verified: VerifiedImage, tmp_path: Path) -> None:
    for builder, verifier in (("stranger", "verifier"), ("builder", "stranger"), ("verifier", "builder")):
        with pytest.raises(KeyUnusable, match="is not the"):
            export_in_toto(verified, tmp_path / "x", builder=key(builder), verifier=key(verifier))
    assert not (tmp_path / "x").exists()
    with pytest.raises(UsageError, match="summary"):
        export_in_toto(
            replace(verified, summary=None), tmp_path / "x", builder=key("builder"), verifier=key("verifier")
        )


def test_a_folder_with_something_in_it_is_left_alone(verified: VerifiedImage, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UsageError, match="something in it"):
        export_in_toto(verified, tmp_path, builder=key("builder"), verifier=key("verifier"))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("which", ["provenance", "summary"])
def test_what_an_identity_signed_has_no_links(verified: VerifiedImage, which: str) -> None:
    require_made_by_keys(verified)
    who = Identity("mailto:dev@team.example", "https://login.example")
    changed: Any = {which: replace(getattr(verified, which), signer=who)}
    with pytest.raises(KeyUnusable, match=r"identity mailto:dev@team\.example.*need a key") as refused:
        require_made_by_keys(replace(verified, **changed))
    assert "cosign" in (refused.value.hint or "")
