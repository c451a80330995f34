"""Whom an operator expects to have published a package: read from his files, held against who signed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, model_validator

from images.attestation import ISSUER, PUBLISHER
from images.lock import ArtifactKind
from images.lock_reader import NPM_NAME
from images.pypi import check_pypi_name
from provenance.sigstore_root import Signer, SigstoreRoot

NEEDS_ROOT: Final = "whom to expect is checked with sigstore_root"
NPM: Final = "npm:"
PYPI: Final = "pypi:"
# Which index's names a kind of artifact has.
INDEX: Final = {ArtifactKind.NPM: NPM, ArtifactKind.NODE: NPM, ArtifactKind.WHEEL: PYPI}
_REPOSITORY: Final = re.compile(r"https://[\x21-\x3f\x41-\x7e]{1,300}(?<!/)", re.ASCII)  # without an @
_WORKFLOW: Final = re.compile(r"(?!/)[\x21-\x3f\x41-\x7e]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """Either one exact ``identity``, or a ``workflow`` of a ``repository`` at any ref; and an issuer."""

    issuer: str
    identity: str = ""
    repository: str = ""
    workflow: str = ""

    def __str__(self) -> str:
        return self.identity or f"{self.repository}/{self.workflow}"

    def problem(self, signer: Signer) -> str | None:
        """Why this is not who was expected; None when it is."""
        if signer.issuer != self.issuer:
            return f"its publisher's issuer is {signer.issuer}, not {self.issuer}"
        if self.identity:
            same = signer.identity == self.identity
            return None if same else f"published by {signer.identity}, not by {self.identity}"
        if signer.repository != self.repository:
            return f"published from {signer.repository or 'no repository'}, not from {self.repository}"
        # The certificate says the ref once more on its own: nothing else follows the workflow's name.
        if not signer.ref or signer.identity != f"{self.repository}/{self.workflow}@{signer.ref}":
            return f"published by {signer.identity}, not by {self.workflow} of {self.repository}"
        return None


@dataclass(frozen=True, slots=True)
class Publishers:
    """``expected``: by package (``npm:NAME``, ``pypi:NAME``). ``root``: what statements are checked with."""

    root: SigstoreRoot | None = None
    expected: Mapping[str, Publisher] = field(default_factory=dict)

    def of(self, kind: ArtifactKind, name: str) -> Publisher | None:
        """Whom to expect; None: nobody was named."""
        return self.expected.get(f"{INDEX[kind]}{name}") if kind in INDEX else None


def matching(pattern: re.Pattern[str], expected: str) -> AfterValidator:
    """Exactly what a certificate has: a pattern of the operator's would match more than he thinks."""

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(f"expected {expected}")
        return text

    return AfterValidator(check)


def _package(text: str) -> str:
    """One package: a pattern would expect somebody of what is published tomorrow."""
    if text.startswith(NPM) and NPM_NAME.fullmatch(text.removeprefix(NPM)):
        return text
    if text.startswith(PYPI):
        check_pypi_name(text.removeprefix(PYPI))
        return text
    raise ValueError("expected npm:NAME or pypi:NAME, one package")


PackageText = Annotated[str, StringConstraints(max_length=300), AfterValidator(_package)]


class PublisherToml(BaseModel):
    """One of ``[publishers]``, in policy.toml and settings.toml alike."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    issuer: Annotated[str, matching(ISSUER, "the https:// address of who issues the logins")]
    identity: Annotated[str, matching(PUBLISHER, "a URI, exactly as the certificate has it")] | None = None
    repository: (
        Annotated[str, matching(_REPOSITORY, "https:// and a repository, without a / at its end")] | None
    ) = None
    workflow: Annotated[str, matching(_WORKFLOW, "a path in the repository, without a @")] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> PublisherToml:
        forms = (self.identity is not None, self.repository is not None, self.workflow is not None)
        if forms not in ((True, False, False), (False, True, True)):
            raise ValueError("expected either identity, or repository and workflow")
        return self

    def publisher(self) -> Publisher:
        """The value."""
        return Publisher(
            issuer=self.issuer,
            identity=self.identity or "",
            repository=self.repository or "",
            workflow=self.workflow or "",
        )


def publishers_from(given: Mapping[str, PublisherToml], root: SigstoreRoot | None) -> Publishers:
    """From one of the files."""
    return Publishers(root, {package: one.publisher() for package, one in given.items()})
