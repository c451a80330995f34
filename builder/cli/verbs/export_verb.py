"""`builder export in-toto`: what proves an image, as links and a layout that in-toto's own verifier reads."""

from __future__ import annotations

import argparse
from dataclasses import replace

from builder.cli.documents.exported import ExportedInTotoDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import key_of, settings_of, state_of
from builder.cli.verified import verified_here
from images.errors import KeyUnusable
from provenance.intoto import LAYOUT_NAME, OTHERWISE, export_in_toto, require_made_by_keys
from provenance.keys import PrivateKey
from provenance.policy_model import Role
from provenance.verify import Purpose


def run(invocation: Invocation) -> Result[ExportedInTotoDocument]:
    """One line: the folder. Only what a launch would find proved is exported."""
    options = invocation.options
    _, verified = verified_here(invocation, state_of(invocation), Purpose.ADMISSION)
    require_made_by_keys(verified)
    files = export_in_toto(
        verified,
        options.folder,
        builder=key_in_a_file(invocation, Role.BUILDER, "--key"),
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
    asked = replace(invocation, options=argparse.Namespace(**(options | own)))
    return key_in_a_file(asked, Role.VERIFIER, "--verifier-key")


def key_in_a_file(invocation: Invocation, role: Role, flag: str) -> PrivateKey:
    """A token signs statements only: an old key file in the folder must not stand in for it unasked."""
    if invocation.options.key is None and role in dict(settings_of(invocation).pkcs11):
        raise KeyUnusable(
            f"the {role} key is on a token, and links are signed with key files only",
            where=f"settings.toml: pkcs11.{role}",
            hint=f"if a key file proved this image: {flag} FILE; else {OTHERWISE}",
        )
    return key_of(invocation, role)
