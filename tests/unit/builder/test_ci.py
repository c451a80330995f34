"""`builder verify --ci`: what fails, with which code, and what no text can make of a CI service."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from builder import verifying
from builder.ci.checking import digest_asked, working_tree
from builder.ci.problems import Outcome, Problem, place_in
from builder.ci.saying import annotation_lines, plain, summary
from builder.cli import main_inner
from builder.cli.invocation import Invocation
from builder.report import harmless, visible
from images.digests import Digest
from images.errors import ExitCode, UsageError
from images.lockfile import lock_bytes
from tests.attacks import Position, attack
from tests.fakes.checkouts import Checkout, make_checkout
from tests.fakes.proved import NOW

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas/sarif.schema.json").read_text())
Type = Callable[..., tuple[int, str, str]]
# What a name, a version or a message could hold.
HOSTILE = (
    "x\n::error file=a::owned",
    "x\r::set-output name=a::owned",
    "::add-mask::x",
    "  ::stop-commands::x",
    "x ##[add-path]/tmp/evil",
    "##vso[task.setvariable variable=a]b",
    "##teamcity[setParameter name='a' value='b']",
    "%0A::error::owned",
    "a,line=7::owned",
    "</td></table><img src=x onerror=alert(1)>",
    "[click](https://evil.example)",
    "![](https://evil.example/?leak)",
    "`code` **bold** _it_ | cell | @team #1 https://evil.example www.evil.example",
    "# heading\n- item\n\n```\nfence",
    "\x1b[31m\x1b]8;;https://evil.example\x07\u2028\u202e",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return make_checkout(tmp_path)


@pytest.fixture
def type_it(
    checkout: Checkout, typed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Type:
    """Types the command there. The base of the tests holds no tools, so no plan is compared."""

    def now(_invocation: Invocation) -> datetime:
        return NOW

    def none(*_: object) -> None:
        return None

    monkeypatch.setattr(Invocation, "now", now)
    monkeypatch.setattr(verifying, "_compare_config", none)
    monkeypatch.setattr(verifying, "_rescan", none)  # real tests scan
    monkeypatch.chdir(checkout.root)

    def run(*more: str, image: tuple[str, ...] = ()) -> tuple[int, str, str]:
        code = main_inner([*checkout.words(*image), *more], {"HOME": str(typed), "PATH": "/usr/bin:/bin"})
        return code, *capsys.readouterr()

    return run


def problems(out: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(out)["problems"]
    return found


def test_all_holds(type_it: Type, checkout: Checkout, tmp_path: Path) -> None:
    files = ("--summary", str(tmp_path / "summary.md"), "--sarif", str(tmp_path / "found.sarif"))
    code, out, err = type_it(*files, "--annotations", "github")
    assert (code, out) == (ExitCode.DONE, f"{checkout.digest}\n")
    assert "::" not in err
    assert "✅ verified" in (tmp_path / "summary.md").read_text()
    log = json.loads((tmp_path / "found.sarif").read_text())
    jsonschema.Draft7Validator(SCHEMA).validate(log)
    assert log["runs"][0]["results"] == []


@pytest.mark.parametrize("words", ["{digest}", "registry.example:5000/team/agents@{digest}"])
def test_the_image_by_digest_and_by_reference(type_it: Type, checkout: Checkout, words: str) -> None:
    assert type_it(image=(words.format(digest=checkout.digest),))[0] == ExitCode.DONE


def test_a_stale_lock_is_told_at_its_line_and_the_image_is_judged_all_the_same(
    type_it: Type, checkout: Checkout, tmp_path: Path
) -> None:
    text = checkout.config.read_text().replace('pi = "0.73.1"', 'pi = "0.73.2"')
    checkout.config.write_text(text)
    line = text.splitlines().index('pi = "0.73.2"') + 1
    code, out, err = type_it("--json", "--annotations", "github", "--sarif", str(tmp_path / "s"))
    assert code == ExitCode.USAGE
    (problem,) = problems(out)
    assert (problem["rule"], problem["file"], problem["line"]) == ("lock", "agents/builder.toml", line)
    assert json.loads(out)["checks"]
    assert f"::error file=agents/builder.toml,line={line},title=builder verify%3A lock::the lock is" in err
    log = json.loads((tmp_path / "s").read_text())
    jsonschema.Draft7Validator(SCHEMA).validate(log)
    (place,) = log["runs"][0]["results"][0]["locations"]
    assert place["physicalLocation"]["region"] == {"startLine": line}


def test_an_error_of_the_configuration_is_told_at_its_line(type_it: Type, checkout: Checkout) -> None:
    checkout.config.write_text(checkout.config.read_text().replace('pi = "0.73.1"', 'pi = "^0.73.1"'))
    code, out, _ = type_it("--json")
    assert code == ExitCode.USAGE
    first = problems(out)[0]
    assert (first["rule"], first["file"]) == ("config", "agents/builder.toml")
    assert first["line"] > 1


def test_everything_that_is_wrong_is_told_at_once(type_it: Type, checkout: Checkout) -> None:
    checkout.config.write_text("schema = 2\n")
    inside = checkout.root / "policy.toml"
    shutil.copy(checkout.world.policy.path, inside)
    code, out, _ = type_it("--json", "--policy", str(inside), image=("team/agents:latest",))
    assert code == ExitCode.USAGE
    assert [one["rule"] for one in problems(out)] == ["config", "policy", "image"]


@attack(by=Position.CONFIG_AUTHOR)
def test_a_policy_of_the_checkout_is_refused_wherever_it_lies_there(
    type_it: Type, checkout: Checkout
) -> None:
    """Beside builder.toml, above it up to the top of the checkout, and by a link in it."""
    for folder in ("agents", ".", "ci/deep"):
        place = checkout.root / folder / "policy.toml"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(checkout.world.policy.path.parent / "keys", place.parent / "keys")
        shutil.copy(checkout.world.policy.path, place)
        code, out, _ = type_it("--json", "--policy", str(place))
        assert code == ExitCode.USAGE
        assert [one["rule"] for one in problems(out)] == ["policy"]
        place.unlink()
        place.symlink_to(checkout.world.policy.path)
        assert type_it("--policy", str(place))[0] == ExitCode.USAGE


def test_an_image_of_another_lock_is_refused(type_it: Type, checkout: Checkout) -> None:
    lock = checkout.world.lock
    other = replace(lock, tools=replace(lock.tools, resolver=Digest.of(b"other")))  # in no key
    checkout.lock.write_bytes(lock_bytes(other))
    code, out, _ = type_it("--json")
    assert code == ExitCode.VERIFY
    (problem,) = problems(out)
    assert (problem["rule"], problem["file"]) == ("parameters", "agents/builder.lock")
    assert str(Digest.of(checkout.lock.read_bytes())) in problem["message"]


def test_an_image_that_nobody_proved_fails_its_checks(
    type_it: Type, checkout: Checkout, tmp_path: Path
) -> None:
    base = str(checkout.world.base.digest)
    code, out, err = type_it(
        "--json", "--annotations", "github", "--summary", str(tmp_path / "s.md"), image=(base,)
    )
    assert code == ExitCode.VERIFY
    assert "signature" in [one["rule"] for one in problems(out)]
    assert "\n::error file=agents/builder.lock,line=1,title=builder verify%3A signature::check 2" in err
    assert "❌ not verified" in (tmp_path / "s.md").read_text()


def test_two_runs_say_the_same(type_it: Type, checkout: Checkout, tmp_path: Path) -> None:
    checkout.config.write_text(checkout.config.read_text().replace("22.23.5", "22.23.6"))
    said = []
    for number in "12":
        files = ("--summary", str(tmp_path / number), "--sarif", str(tmp_path / f"s{number}"))
        code, out, err = type_it("--json", "--annotations", "github", *files)
        said.append((code, out, err, *((tmp_path / name).read_bytes() for name in (number, f"s{number}"))))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--attest",), "--attest"),
        (("--lock", "x"), "--lock"),
        (("--sign-rebuild",), "--sign-rebuild"),
    ],
)
def test_a_check_signs_and_builds_nothing(type_it: Type, words: tuple[str, ...], why: str) -> None:
    code, _, err = type_it(*words)
    assert code == ExitCode.USAGE
    assert why in err


@pytest.mark.parametrize("words", [("--sarif", "x"), ("--digest-file", "x"), ("--annotations", "github")])
def test_its_options_need_it(typed: Path, words: tuple[str, ...]) -> None:
    assert main_inner(["verify", *words], {"HOME": str(typed)}) == ExitCode.USAGE
    assert not (typed / "x").exists()


@attack(by=Position.CONFIG_AUTHOR)
@pytest.mark.parametrize("option", ["--summary", "--sarif"])
@pytest.mark.parametrize("linked", ["file", "folder", "into the checkout", "../dots"])
def test_a_link_in_the_checkout_says_not_what_is_written_over(
    type_it: Type, checkout: Checkout, tmp_path: Path, option: str, linked: str
) -> None:
    (kept := tmp_path / "kept").mkdir()
    (kept / "file").write_text("mine")
    (checkout.root / "out").symlink_to(kept)
    (checkout.root / "one").symlink_to(kept / "file")
    (checkout.root / "two").symlink_to(checkout.config)
    names = {"file": "one", "folder": "out/file", "into the checkout": "two", "../dots": "out/../kept/file"}
    before = checkout.config.read_bytes()
    code, _, err = type_it(option, names[linked])
    assert code == ExitCode.STATE
    assert "a link in the checkout" in err
    assert (kept / "file").read_text() == "mine"
    assert checkout.config.read_bytes() == before


def test_a_file_of_the_checkout_and_a_standard_stream_are_written(type_it: Type, checkout: Checkout) -> None:
    assert type_it("--summary", "s.md", "--sarif", "/dev/stderr")[0] == ExitCode.DONE
    assert "verified" in (checkout.root / "s.md").read_text()


def test_a_summary_that_cannot_be_written_is_no_success(type_it: Type) -> None:
    assert type_it("--summary", "/nowhere/s.md")[0] == ExitCode.STATE


@pytest.mark.parametrize(
    "text",
    ["", "latest", "team/agents:1", "sha256:" + "0" * 63, "sha256:" + "A" * 64, "x@sha512:" + "0" * 128],
)
def test_what_is_not_one_digest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "d").write_text(text)
    for words, file in ((text, None), (None, tmp_path / "d")):
        with pytest.raises(UsageError, match="digest"):
            digest_asked(words, file)
    two = f"sha256:{'0' * 64}\nsha256:{'1' * 64}"
    (tmp_path / "d").write_text(two)
    with pytest.raises(UsageError, match="not one digest"):
        digest_asked(None, tmp_path / "d")
    with pytest.raises(UsageError, match="exactly one"):
        digest_asked("sha256:" + "0" * 64, tmp_path / "d")


def test_the_checkout_is_the_nearest_working_tree(tmp_path: Path) -> None:
    inside = tmp_path / "repository/a/b"
    inside.mkdir(parents=True)
    assert working_tree(inside / "builder.toml") == inside
    (tmp_path / "repository/.git").write_text("gitdir: elsewhere")  # of a worktree or a submodule
    assert working_tree(inside / "builder.toml") == tmp_path / "repository"


def outcome_of(text: str) -> Outcome:
    problem = Problem(rule="config", message=text, hint=text, file=text, line=3)
    return Outcome(
        image=None,
        image_name=text,
        lock=None,
        policy=None,
        checks=(),
        ignored=(text,),
        problems=(problem,),
        failure=UsageError(text),
    )


def github_commands(output: str) -> list[str]:
    """The commands that GitHub's runner finds in what a step printed: line by line, in both of its forms."""
    found = []
    for line in re.split(r"\r\n|\r|\n", output):
        if line.lstrip().startswith("::") and "::" in line.lstrip()[2:]:
            found.append(line.lstrip()[2:].partition("::")[0].split()[0])
        elif found_old := re.search(r"##\[([^\]]+)\]", line):
            found.append(found_old[1])
    return found


def as_github_reads(line: str) -> str:
    """What its runner makes of a command's escapes, in its order."""
    for escape, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        line = line.replace(escape, char)
    return line


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_a_command(text: str) -> None:
    (line,) = annotation_lines(outcome_of(text))
    assert github_commands(line) == ["error"]
    assert "\n" not in as_github_reads(line)
    properties = line[2:].partition("::")[0].removeprefix("error ").split(",")
    assert [one.partition("=")[0] for one in properties] == ["file", "line", "title"]
    assert properties[1:] == ["line=3", "title=builder verify%3A config"]
    assert not re.search(r"[\r\n\x1b\u2028\u202e]", line)
    assert github_commands(harmless(text)) == []
    assert not re.search(r"##\w*\[", harmless(text))


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_markdown(text: str) -> None:
    said = summary(outcome_of(text))
    shown = plain(text)
    assert re.fullmatch(r"(?:[A-Za-z0-9 ,;/=]|&#[0-9]+;)*", shown)
    assert shown in said
    assert "\n" not in shown
    lines = said.splitlines()
    assert sum(line.startswith("#") for line in lines) == 1
    assert "<" not in said.replace("&#60;", "")
    assert "https://" not in said
    assert "@" not in said
    assert html.unescape(shown) == visible(text, "")


def test_what_is_printed_by_any_command_holds_no_command(
    type_it: Type, checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown key of builder.toml is shown, and a pull request can name it as it likes."""
    for key in ("::error::owned", "##[add-path]evil"):
        checkout.config.write_text(f'"{key}" = 1\n' + checkout.config.read_text())
        for words in (("--json",), ("--progress", "json"), ()):
            code, out, err = type_it(*words)
            assert code == ExitCode.USAGE
            assert github_commands(out) == github_commands(err) == []
            if words == ("--json",):
                assert key in json.loads(out)["problems"][0]["message"]


def test_no_secret_is_shown(type_it: Type, checkout: Checkout, tmp_path: Path) -> None:
    secret = "ghp_" + "0123456789abcdefghij" * 2
    checkout.config.write_text(f'token = "{secret}"\n' + checkout.config.read_text())
    files = ("--summary", str(tmp_path / "s.md"), "--sarif", str(tmp_path / "s.sarif"))
    code, out, err = type_it("--json", "--annotations", "github", *files)
    assert code == ExitCode.CREDENTIAL
    everything = out + err + (tmp_path / "s.md").read_text() + (tmp_path / "s.sarif").read_text()
    assert secret not in html.unescape(everything)
    assert secret[4:20] not in everything


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("agents/builder.toml, line 7", ("agents/builder.toml", 7)),
        ("agents/builder.lock", ("agents/builder.lock", 0)),
        ("/etc/passwd, line 1", ("", 0)),
        ("agents/../../secret, line 2", ("", 0)),
        ("gone.toml, line 2", ("", 0)),
        ("x" * 5000, ("", 0)),
        ("a\0b", ("", 0)),
        ("", ("", 0)),
    ],
)
def test_only_files_of_the_checkout_are_named(
    checkout: Checkout, where: str, expected: tuple[str, int]
) -> None:
    assert place_in(where, checkout.root) == expected
    if expected[0]:
        assert place_in(f"{checkout.root}/{where}", checkout.root) == expected
