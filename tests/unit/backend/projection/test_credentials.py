"""Reading a credential: what is taken, what is refused, and that no error repeats a letter of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.projection.asking import check_arguments, check_labels
from backend.projection.credentials import MAX_CREDENTIAL_BYTES, read_credential
from backend.projection.placing import NOTHING, projection_of
from backend.projection.routes import Form, Provider, Route, kept_name, parse_name
from images.credentials import SHAPES
from images.errors import BuilderError, LaunchReason, LaunchRefused, UsageError
from images.redaction import Redactor
from tests.fakes.admitted import NOW
from tests.fakes.credentials import sample
from tests.fakes.projected import LATER, api, credential, dummy, file_of, named, oauth

KEY_ROUTES = [route for route in Route if route.form is Form.KEY]
FILE_ROUTES = [route for route in Route if route.form is Form.AUTH_FILE and not route.rotates]


def secret_texts(route: Route) -> set[str]:
    return {secret.reveal().decode() for secret in credential(route).secrets}


@pytest.mark.parametrize("route", Route)
def test_each_route_reads_its_file(route: Route) -> None:
    found = credential(route)
    assert found.name == named(route)
    kinds = ("key", "token", "other", *(("refresh",) if route.rotates else ()))
    assert secret_texts(route) <= {dummy(kind) for kind in kinds}
    assert secret_texts(route)
    assert "dummy" not in repr(found)


def test_the_refresh_token_stays_with_the_operator() -> None:
    found = credential(Route.PI_OAUTH)
    assert dummy("refresh").encode() not in found.content.reveal()
    assert json.loads(found.content.reveal())["anthropic"]["refresh"] == ""


HOSTILE_KEYS = {
    "empty": b"",
    "only a newline": b"\n",
    "short": b"sk-1234567890",
    "two lines": dummy("key").encode() + b"\nsecond-line-of-it\n",
    "a blank before": b" " + dummy("key").encode(),
    "a zero byte": dummy("key").encode() + b"\0",
    "a carriage return inside": dummy("key").encode() + b"\rabc",
    "an escape": b"\x1b[31m" + dummy("key").encode(),
    "not UTF-8": b"\xff\xfe" + dummy("key").encode(),
    "UTF-16": dummy("key").encode("utf-16"),
    "not ASCII": ("é" + dummy("key")).encode(),
    "a mark of byte order": b"\xef\xbb\xbf" + dummy("key").encode(),
    "a command for Pi": b"!" + dummy("key").encode(),
    "a variable for Pi": b"SOME_VARIABLE_OF_THE_CONTAINER",
    "a shell's expansion": b"$(cat /etc/passwd)" + dummy("key").encode(),
    "quotes": b'"' + dummy("key").encode() + b'"',
    "an assignment": b"ANTHROPIC_API_KEY='" + dummy("key").encode() + b"'",
    "a megabyte": b"a" * (1 << 20),
    "a whole JSON file": b'{"anthropic": {"type": "api", "key": "' + dummy("key").encode() + b'"}}',
}


@pytest.mark.parametrize("route", KEY_ROUTES)
@pytest.mark.parametrize("what", HOSTILE_KEYS)
def test_a_file_that_is_not_one_key_is_refused(route: Route, what: str) -> None:
    refused(route, HOSTILE_KEYS[what], UsageError)


def entry(**changes: object) -> bytes:
    return json.dumps({"anthropic": oauth(**changes)}).encode()


def entry_of(route: Route, **changes: object) -> bytes:
    """One provider's entry of the kind that this route takes."""
    made = oauth(**changes) if route is Route.PI_OAUTH else api(**changes)
    return json.dumps({"anthropic": made}).encode()


HOSTILE_FILES: dict[str, bytes] = {
    "nothing": b"",
    "a line": dummy("key").encode(),
    "not UTF-8": b'{"anthropic": "\xff"}',
    "a list": b"[]",
    "no provider": b"{}",
    "a provider twice": b'{"anthropic": {}, "anthropic": {}}',
    "a text for an entry": b'{"anthropic": "' + dummy("key").encode() + b'"}',
    "an odd provider": json.dumps({"../../etc": oauth()}).encode(),
    "no type": entry(type=None),
    "another type": entry(type="wellknown", key=dummy("key"), token=dummy("token")),
    "deep": b'{"anthropic": ' + b'{"a": ' * 60 + b"1" + b"}" * 61,
    "forty providers": json.dumps({f"p{number}": oauth() for number in range(40)}).encode(),
    "a megabyte": json.dumps({"anthropic": oauth(x="y" * (1 << 20))}).encode(),
}
HOSTILE_ENTRIES: dict[str, dict[str, object]] = {
    "a list": {"accounts": [dummy("token")]},
    "an odd field": {"a b": "x"},
    "a zero byte": {"accountId": "a\0b"},
    "forty fields": {f"f{number}": "x" for number in range(40)},
}
HOSTILE_LOGINS: dict[str, bytes] = {
    "no access token": entry(access=None),
    "an empty access token": entry(access=""),
    "a number for a token": entry(access=1234567890123456),
    "an access token of two lines": entry(access=dummy("token") + "\nx"),
    "a command for an access token": entry(access="!cat /etc/passwd of this container"),
    "no refresh token": entry(refresh=None),
    "no end": entry(expires=None),
    "an end in words": entry(expires="tomorrow"),
    "true for an end": entry(expires=True),
    "expired": entry(expires=int(NOW.timestamp() * 1000)),
    "never used": entry(expires=0),
    "a key": json.dumps({"anthropic": api()}).encode(),
    "a key as Pi keeps it, which may be a command": json.dumps({"anthropic": api(type="api_key")}).encode(),
}
HOSTILE_API: dict[str, bytes] = {
    "no key": json.dumps({"anthropic": api(key=None)}).encode(),
    "a command for a key": json.dumps({"anthropic": api(key="!cat /etc/passwd of this container")}).encode(),
    "two lines": json.dumps({"anthropic": api(key=dummy("key") + "\nsecond-line-of-it")}).encode(),
    "a number": json.dumps({"anthropic": api(key=1234567890123456)}).encode(),
    "a login, which it has no plugin for": json.dumps({"anthropic": oauth()}).encode(),
}


@pytest.mark.parametrize("route", FILE_ROUTES)
@pytest.mark.parametrize("what", HOSTILE_FILES)
def test_an_auth_file_of_another_form_is_refused(route: Route, what: str) -> None:
    refused(route, HOSTILE_FILES[what], UsageError)


@pytest.mark.parametrize("route", FILE_ROUTES)
@pytest.mark.parametrize("what", HOSTILE_ENTRIES)
def test_an_entry_with_an_odd_field_is_refused(route: Route, what: str) -> None:
    refused(route, entry_of(route, **HOSTILE_ENTRIES[what]), UsageError)


@pytest.mark.parametrize("what", HOSTILE_LOGINS)
def test_a_login_that_pi_could_not_use_is_refused(what: str) -> None:
    refused(Route.PI_OAUTH, HOSTILE_LOGINS[what], UsageError)


@pytest.mark.parametrize("what", HOSTILE_API)
def test_an_entry_that_opencode_could_not_use_is_refused(what: str) -> None:
    refused(Route.OPENCODE_AUTH_FILE, HOSTILE_API[what], UsageError)


@pytest.mark.parametrize("route", FILE_ROUTES)
def test_what_we_do_not_know_in_an_entry_is_kept_and_kept_secret(route: Route) -> None:
    raw = entry_of(
        route,
        accountId="dummy-account-1234",
        more={"deep": "dummy-deeper-value"},
        enterpriseUrl="models.test",
    )
    found = read_credential(named(route), raw, NOW)
    texts = {secret.reveal().decode() for secret in found.secrets}
    assert {"dummy-account-1234", "dummy-deeper-value"} <= texts
    assert "models.test" not in texts
    assert json.loads(found.content.reveal())["anthropic"]["more"] == {"deep": "dummy-deeper-value"}


HOSTING = ("github-token", "github-fine-grained", "gitlab-token", "atlassian-token", "private-key")


def hosting_values() -> dict[str, str]:
    shapes = {shape.id: shape for shape in SHAPES}
    found = {
        f"{name}/{number}": sample(shapes[name], number).decode("latin-1")
        for name in HOSTING
        for number in range(len(shapes[name].prefixes) if shapes[name].prefixes else 1)
    }
    found["a URL with a login"] = "https://someone:" + dummy("word") + "@git.test/a.git"
    found["a GitHub token without its checksum"] = "gh" + "p_" + "a1" * 18
    return found


@pytest.mark.parametrize("what", hosting_values())
def test_what_could_write_to_git_hosting_is_refused_by_every_route(what: str) -> None:
    value = hosting_values()[what]
    for route in KEY_ROUTES:
        refused(route, value.encode("latin-1") + b"\n", LaunchRefused, never=value)
    for route in FILE_ROUTES:
        for field in ("access" if route is Route.PI_OAUTH else "key", "more"):
            refused(route, entry_of(route, **{field: value}), LaunchRefused, never=value)


@pytest.mark.parametrize("provider", ["github-copilot", "github-copilot-enterprise", "gitlab", "bitbucket"])
def test_a_login_of_a_hosting_service_is_refused_by_its_name(provider: str) -> None:
    for route in FILE_ROUTES:
        made = oauth() if route is Route.PI_OAUTH else api()
        refused(route, json.dumps({"anthropic": made, provider: made}).encode(), LaunchRefused)


def refused(route: Route, raw: bytes, kind: type[BuilderError], *, never: str = "") -> None:
    """Refused; the error names the credential, and repeats nothing of what is in the file."""
    with pytest.raises(kind) as caught:
        read_credential(named(route), raw, NOW)
    failure = caught.value
    if isinstance(failure, LaunchRefused):
        assert failure.reason == LaunchReason.CREDENTIAL_FOR_HOSTING
    assert str(named(route)) in failure.where
    told = f"{failure.what} {failure.hint}".encode()
    for value in (dummy("key"), dummy("token"), "second-line-of-it", "cat /etc/passwd", never):
        assert not value or value[:20].encode() not in told


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(raw: bytes) -> None:
    for route in Route:
        with contextlib.suppress(UsageError, LaunchRefused):
            assert read_credential(named(route), raw, NOW).secrets


def test_the_bound_is_the_readers() -> None:
    padded = file_of(Route.PI_OAUTH) + b" " * MAX_CREDENTIAL_BYTES
    refused(Route.PI_OAUTH, padded, UsageError)


@pytest.mark.parametrize("route", [route for route in Route if not route.rotates])
def test_names_are_read_back(route: Route) -> None:
    assert parse_name(str(named(route))) == named(route)


@pytest.mark.parametrize("route", [route for route in Route if route.rotates])
def test_a_login_that_renews_itself_is_not_given_by_name(route: Route) -> None:
    assert kept_name(str(named(route))) == named(route)
    with pytest.raises(UsageError) as caught:
        parse_name(str(named(route)))
    assert caught.value.hint == f"builder login {route.agent}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "claude-code",
        "claude-code.api-key.anthropic",
        "opencode.api-key",
        "pi.api-key.",
        "pi.api-key.nobody",
    ],
)
def test_other_names_are_refused_with_the_list(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_name(text)
    assert all(str(route) in caught.value.hint for route in Route if not route.rotates)
    assert all(provider in caught.value.hint for provider in Provider)


def test_a_value_typed_for_a_name_is_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        parse_name(dummy("key"))
    assert dummy("key") not in f"{caught.value} {caught.value.hint}"


def assignments() -> dict[str, Callable[[str], tuple[str, ...]]]:
    return {
        "env": lambda value: ("env", f"ANTHROPIC_API_KEY={value}", "claude"),
        "in a script": lambda value: ("sh", "-c", f"export OPENAI_API_KEY={value}; opencode run x"),
        "another name": lambda value: ("env", f"MY_SERVICE_TOKEN={value}", "true"),
        "a flag's value": lambda value: ("pi", "--api-key", f"sk-ant-api03-{value}{'x' * 40}"),
        "a header": lambda value: ("curl", "-H", f"Authorization: Bearer {value}"),
        "a URL": lambda value: ("git", "clone", f"https://me:{value}@git.test/a.git"),
    }


@pytest.mark.parametrize("form", assignments())
def test_what_looks_like_a_secret_is_refused_on_a_command_line(form: str) -> None:
    value = "zq7" * 8
    with pytest.raises(UsageError) as caught:
        check_arguments(assignments()[form](value), NOTHING)
    assert value not in f"{caught.value} {caught.value.hint}"
    assert "--credential" in caught.value.hint


@pytest.mark.parametrize(
    "argv",
    [
        ("sh", "-c", "echo $ANTHROPIC_API_KEY; export PATH=/usr/bin; A=1 make"),
        ("claude", "-p", "say how TOKEN=${TOKEN} and PASSWORD=<password> get into the test"),
        ("env", "MAX_OUTPUT_TOKENS=4096", "NODE_ENV=production", "true"),
    ],
)
def test_what_only_speaks_of_secrets_is_no_secret(argv: tuple[str, ...]) -> None:
    check_arguments(argv, NOTHING)


@pytest.mark.parametrize("route", Route)
@pytest.mark.parametrize("around", ["{}", "the key is '{}'.", "x{}x"])
def test_a_given_key_is_refused_on_a_command_line_whatever_its_form(route: Route, around: str) -> None:
    """Most providers' keys have no form that a table could know."""
    value, name = "zq7" * 8, named(route)
    raw = file_of(route).decode()
    for kind in ("key", "token", "other"):
        raw = raw.replace(dummy(kind), value)
    given = projection_of([read_credential(name, raw.encode(), NOW)])
    with pytest.raises(UsageError) as caught:
        check_arguments(("true", around.format(value)), given)
    assert value not in f"{caught.value} {caught.value.hint}"
    assert str(name) in caught.value.what
    check_arguments(("true", "anthropic", "oauth", "api"), given)
    with pytest.raises(UsageError) as caught:
        check_labels(("run", f"issue/{around.format(value)}"), given)
    assert value not in f"{caught.value} {caught.value.hint}"
    check_labels(("run", "team/issue:17"), given)


def test_a_shape_is_refused_where_it_would_become_a_label() -> None:
    shapes = {shape.id: shape for shape in SHAPES}
    with pytest.raises(UsageError):
        check_labels((sample(shapes["github-token"]).decode(),), NOTHING)


@pytest.mark.parametrize("blank", [" " * 9, "  abc   ", "a b"])
def test_a_text_that_no_output_can_be_kept_free_of_is_no_secret(blank: str) -> None:
    """Else the launch would be refused when it is too late."""
    raw = json.dumps({"anthropic": oauth(note=blank)}).encode()
    found = read_credential(named(Route.PI_OAUTH), raw, NOW)
    assert Redactor(found.secrets).feed(b"said\n") == b"said\n"


def test_the_dummies_last_as_long_as_the_tests_clock() -> None:
    assert NOW.timestamp() * 1000 < LATER
