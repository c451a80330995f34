"""Names, URLs and headers: what makes a value a credential by its surroundings, and what does not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.credential_names import judge_named, judge_text, judge_urls
from provenance.scan.documents import judge_document

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NPM_TOKEN", "abcd"),
        ("TWINE_PASSWORD", "123456"),
        ("build-arg:GITHUB_TOKEN", "swordfish"),
        ("//registry.example/:_authToken", "swordfish"),
        ("apiKey", "swordfish-9"),
        ("clientSecret", "swordfish-9"),
        ("db.password", "swordfish-9"),
        ("X-Auth-Token", "swordfish-9"),
        ("npm_config__auth", "c3dvcmRmaXNo"),
        ("SSH_PRIVATE_KEY", "swordfish-9"),
    ],
)
def test_a_literal_under_such_a_name(name: str, value: str) -> None:
    found = judge_named(name, value)
    assert found is not None
    assert value not in repr(found)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NPM_TOKEN", "abc"),
        ("NPM_TOKEN", "${X}"),
        ("NPM_TOKEN", "$(cat /run/secrets/npm)"),
        ("NPM_TOKEN", "true"),
        ("MY_TOKEN", "short"),
        ("MY_TOKEN_FILE", "/run/secrets/token-file"),
        ("MAX_THINKING_TOKENS", "1234567890"),
        ("tokenizer", "swordfish-9"),
        ("passwordless", "swordfish-9"),
        ("js-tokens", "4.0.0-beta.1"),
        ("csrf-token", "sha512-abcdefgh"),
        ("node_modules/@tokenizer/token", "npm-swordfish"),
        ("token", "dist/token.cjs"),
        ("", "swordfish-9"),
    ],
)
def test_not_a_literal_or_not_such_a_name(name: str, value: str) -> None:
    assert judge_named(name, value) is None


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("curl -H 'Authorization: Bearer swordfish-9' https://x", ["authorization-header"]),
        ('{"authorization": "Basic c3dvcmRmaXNo"}', ["authorization-header"]),
        ("x-api-key: swordfish-9", ["authorization-header"]),
        ("Authorization: Bearer ${TOKEN}", []),
        ("Authorization: Bearer <token>", []),
        ("A=1 DB_PASSWORD='sword fish nine' make", ["name"]),
        ('export DB_PASSWORD="swordfish-9"', ["name"]),
        ("https://me:swordfish-9@host/a", ["url-userinfo"]),
        (r"https:\/\/me:swordfish-9@host\/a", ["url-userinfo"]),
        ("https://abcdefgh12345678ijkl@host/a.git", ["url-userinfo"]),
        ("https://user:password@host/a", []),
        ("https://me:${TOKEN}@host/a", []),
        ("ssh://git@host/a", []),
        ("postgres://app:swordfish-9@db/app", ["url-userinfo"]),
    ],
)
def test_texts(text: str, rules: list[str]) -> None:
    assert [found.rule for found in judge_text(text)] == rules


def test_a_document_tells_the_path_of_keys() -> None:
    payload = json.dumps({"deep": [{"env": ["A=1", "DB_PASSWORD=sword fish"]}]})
    (found,) = {path for path, _ in judge_document(payload.encode(), "x")}
    assert found == "deep[0].env[1]"


def test_what_is_no_json_is_read_as_text() -> None:
    raw = b'{"password": "swordfish-9", // a comment\n'
    assert [found.rule for _, found in judge_document(raw, "x")] == ["name"]


@given(JSON)
def test_any_json_is_judged_without_a_failure(value: object) -> None:
    list(judge_document(json.dumps(value).encode(), "x"))


@given(st.binary(max_size=500))
def test_any_bytes_are_judged_without_a_failure(raw: bytes) -> None:
    list(judge_document(raw, "x"))


@given(st.text(max_size=300))
def test_any_text_is_judged_without_a_failure(text: str) -> None:
    list(judge_text(text))
    list(judge_urls(text))
