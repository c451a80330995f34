"""A Secret never shows; the table keeps its own laws; the redactor hides every shape."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.credential_places import HARMLESS_NAMES, HARMLESS_VALUES, PATH_RULES, SECRET_NAMES, SECRET_WORDS
from images.credentials import SHAPES, Confirm, Secret, Shape
from images.redaction import REDACTED, redact
from tests.fakes.credentials import sample

TEXT_SHAPES = [shape for shape in SHAPES if shape.confirm is not Confirm.DER]


def test_a_secret_shows_nowhere() -> None:
    secret = Secret.of_text("open sesame, please")
    shown = [repr(secret), str(secret), f"{secret}", f"{secret:>40}", "%s" % secret, repr([secret])]  # noqa: UP031
    assert not any("sesame" in text for text in shown)
    assert secret.reveal() == b"open sesame, please"


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy, hash])
def test_a_secret_is_neither_pickled_copied_nor_hashed(take: object) -> None:
    with pytest.raises(TypeError) as caught:
        take(Secret(b"open sesame"))  # type: ignore[operator]
    assert "sesame" not in str(caught.value)


def test_secrets_are_compared_by_value_and_only_with_secrets() -> None:
    assert Secret(b"a") == Secret(b"a")
    assert Secret(b"a") != Secret(b"b")
    assert Secret(b"a") != b"a"
    assert not Secret(b"")


def test_a_secret_takes_no_new_attribute() -> None:
    with pytest.raises(AttributeError):
        Secret(b"a").note = "x"  # type: ignore[attr-defined]


def test_ids_are_unique_and_rules_are_not_empty() -> None:
    ids = [shape.id for shape in SHAPES] + [rule.id for rule in PATH_RULES]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", name) for name in ids)
    assert all(shape.prefixes for shape in SHAPES)
    assert all(rule.globs for rule in PATH_RULES)


@pytest.mark.parametrize("shape", TEXT_SHAPES, ids=[shape.id for shape in TEXT_SHAPES])
def test_the_redactor_hides_every_shape(shape: Shape) -> None:
    value = sample(shape)
    hidden = redact(b"before " + value + b" after")
    assert value not in hidden
    assert hidden.startswith(b"before ")
    assert REDACTED.encode() in hidden
    assert redact(f"x={value.decode()};").count(REDACTED) >= 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://someone:pass-word@host/path", "https://[redacted]@host/path"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "Authorization: Basic [redacted]"),
        ("nothing to see at https://host/path", "nothing to see at https://host/path"),
        ("git@host:team/repository", "git@host:team/repository"),
    ],
)
def test_the_redactor_hides_passwords_of_urls_and_headers(text: str, expected: str) -> None:
    assert redact(text) == expected


@given(st.binary(max_size=2000))
def test_redacting_twice_changes_nothing_more(data: bytes) -> None:
    assert redact(redact(data)) == redact(data)


@given(st.text(max_size=500))
def test_text_without_a_shape_is_left_alone(text: str) -> None:
    if not re.search(r"[A-Za-z0-9]{16}|@|:|-----", text):
        assert redact(text) == text


def test_listed_names_are_not_harmless_by_name() -> None:
    assert not [name for name in SECRET_NAMES if HARMLESS_NAMES.fullmatch(name)]


@pytest.mark.parametrize(
    "name",
    [
        "GPG_KEY",
        "PYTHON_SHA256",
        "NODE_VERSION",
        "SSH_AUTH_SOCK",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
        "X_TOTAL_TOKENS_REMINDER",
        "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "GIT_ASKPASS",
        "PWD",
    ],
)
def test_names_that_hold_no_credential_are_allowed(name: str) -> None:
    assert HARMLESS_NAMES.fullmatch(name)


@pytest.mark.parametrize("name", ["SCP_UPLOAD_PASS", "DB_PASSWORD", "MY_TOKEN", "X_API_KEY", "DOPPLER_TOKEN"])
def test_words_in_a_name_say_credential(name: str) -> None:
    assert SECRET_WORDS.search(name)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "$TOKEN",
        "${TOKEN}",
        "$(cat /run/secrets/x)",
        "/run/secrets/x",
        "<token>",
        "true",
        "your-key",
        "xxxx",
    ],
)
def test_references_and_fillers_are_harmless_values(value: str) -> None:
    assert HARMLESS_VALUES.fullmatch(value)
