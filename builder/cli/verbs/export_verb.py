"""`builder export in-toto`: what proves an image, as links and a layout that in-toto's own verifier reads."""

from __future__ import annotations

import argparse
from dataclasses import replace

from builder.cli.documents.exported import ExportedInTotoDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import key_of, state_of
from builder.cli.verified import verified_here
from provenance.intoto import LAYOUT_NAME, export_in_toto
from provenance.keys import PrivateKey
from provenance.policy_model import Role
from provenance.verify import Purpose


def run(invocation: Invocation) -> Result[ExportedInTotoDocument]:
    """One line: the folder. Only what a launch would find proved is exported."""
    options = invocation.options
    _, verified = verified_here(invocation, state_of(invocation), Purpose.ADMISSION)
    files = export_in_toto(
        verified,
        options.folder,
        builder=key_of(invocation, Role.BUILDER),
        verifier=_verifiers_key(invocation),
    )
    invocation.reporter.say(f"wrote {len(files)} files; to check them, in {options.folder}:")
    invocation.reporter.say(f"  in-toto-verify --layout {LAYOUT_NAME} --verification-keys VERIFIER.pub")
    return Result(
        line=str(options.folder),
        document=ExportedInTotoDocument(
            image=str(verified.image.digest), folder=str(options.folder), files=files
        ),
    )


def _verifiers_key(invocation: Invocation) -> PrivateKey:
    """By its own three options."""
    options = vars(invocation.options)
    own = {name: options[f"verifier_{name}"] for name in ("key", "passphrase_fd", "passphrase_file")}
    return key_of(replace(invocation, options=argparse.Namespace(**(options | own))), Role.VERIFIER)
