"""The pages about evidence name every check, field and type that the program has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from provenance import predicates
from provenance.bundles import BUNDLE_TYPE
from provenance.checks import CheckId
from provenance.policy_model import (
    ACCEPTABLE,
    AcceptToml,
    EnableToml,
    PolicyToml,
    RevokedToml,
    Role,
    TrustToml,
)
from provenance.referrers import LOCK_TYPE

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_every_check_is_documented_under_its_number_and_name() -> None:
    rows = re.findall(
        r"^\| (\d+) \| (\w+) \| .+ \|", (REFERENCE / "verify-checks.md").read_text(), re.MULTILINE
    )
    assert [(int(number), name) for number, name in rows] == [(int(one), one.name.lower()) for one in CheckId]


def fields(model: type[BaseModel]) -> set[str]:
    found: set[str] = set()
    for name, field in model.model_fields.items():
        found.add(field.alias or name)
        for inner in re.findall(r"provenance\.predicates\.(\w+)", str(field.annotation)):
            found |= fields(getattr(predicates, inner))
    return found


@pytest.mark.parametrize(
    "model",
    [
        predicates.ProvenancePredicate,
        predicates.ScanPredicate,
        predicates.DetectionPredicate,
        predicates.VsaPredicate,
        predicates.SbomPredicate,
    ],
)
def test_every_field_is_documented(model: type[BaseModel]) -> None:
    text = (REFERENCE / "provenance.md").read_text()
    assert fields(model)
    assert [name for name in sorted(fields(model)) if not re.search(rf"[`.]{name}[`.]", text)] == []


def test_every_policy_key_is_documented() -> None:
    text = (REFERENCE / "policy-toml.md").read_text()
    models = (PolicyToml, AcceptToml, RevokedToml, EnableToml, TrustToml)
    names = {field.alias or name for model in models for name, field in model.model_fields.items()}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
    assert [word for word in (*ACCEPTABLE, *Role) if f"`{word}`" not in text] == []


def test_every_type_is_documented() -> None:
    text = (REFERENCE / "provenance.md").read_text()
    types = (
        *predicates.PREDICATE_TYPES,
        predicates.BUILD_TYPE,
        predicates.SLSA_LEVEL,
        BUNDLE_TYPE,
        LOCK_TYPE,
    )
    assert [name for name in types if f"`{name}`" not in text] == []
