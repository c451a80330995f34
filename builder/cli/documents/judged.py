"""What `policy` prints with --json: `check` and `pin`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from builder.cli.documents import Answer, Document, Kind
from builder.cli.documents.shapes import Count, DigestText, Text
from provenance.checks import Status
from provenance.policy_words import Bearing


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLineDocument:
    """A setting of policy.toml: what it says, and whether it holds, is to be noted, or refuses all."""

    setting: Text
    says: Text
    bearing: Bearing


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionDocument:
    """One check of an admission. ``decided_by``: keys of policy.toml; empty where the bytes alone decide."""

    number: int
    title: Text
    status: Status
    message: str
    decided_by: tuple[Text, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCheckDocument(Document):
    """What the policy decides, line by line. ``image``: null, and no decisions, where none was asked about.

    ``admits``: whether this policy lets the image be launched; of a policy alone, whether it lets any.
    """

    KIND: ClassVar = Kind("policy-check", "policy check [IMAGE]", Answer.VERDICT)

    policy: DigestText
    path: Text
    serial: Count
    lines: tuple[PolicyLineDocument, ...]
    image: DigestText | None
    decisions: tuple[DecisionDocument, ...]
    admits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPinDocument(Document):
    """The rollback marks. ``policy``: digest of the policy that is the newest accepted one from now on."""

    KIND: ClassVar = Kind("policy-pin", "policy pin")

    serial: Count
    policy: DigestText
