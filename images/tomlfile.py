"""The operator's TOML files, read strictly: each error has file, line, dotted path and what was expected."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, get_args

from images.errors import BuilderError, CredentialFound, UsageError
from images.planted import HINT, CredentialRefused, Planted, find_by_shape, judge_refused

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

    _Model = TypeVar("_Model", bound=BaseModel)
_Error = TypeVar("_Error", bound=BuilderError)

MAX_BYTES: Final = 1024 * 1024
_PLACED: Final = 50  # problems whose lines are looked up, to name the first in the file
_PLACED_CHARACTERS: Final = 500_000  # and no more than these characters read for it
_MARK: Final = "\0"  # cannot occur in a TOML document, so it is found again without doubt

# A key of more parts than any file of ours has: Python's reader keeps every beginning of it, so the memory it
# takes grows with the square of their number.
_DEEP_KEY: Final = re.compile(
    r"""(?<![A-Za-z0-9_\-])(?:(?:[A-Za-z0-9_\-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){64}"""
)

# What pydantic calls a wrong type, in the words of the person who typed the file.
_EXPECTED: Final = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "list_type": "a list in [ ]",
    "tuple_type": "a list in [ ]",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "datetime_type": "a date and time such as 2027-02-28T00:00:00Z",
}


def read_toml(
    text: str,
    where: str,
    model: type[_Model],
    *,
    later: Mapping[str, str] | None = None,
    secret: bool = False,
) -> _Model:
    """Parse and validate; raises UsageError naming line, dotted path and what was expected.

    ``later``: dotted path of a section that this version does not have yet -> why it is refused. Where a
    value looks like a credential, by the scanner's tables, CredentialFound names line, dotted path and rule;
    not in a ``secret`` file, which is for them.
    """
    from pydantic import ValidationError  # noqa: PLC0415  (a slow import that a cached answer never needs)

    document = parse_toml(text, where)
    for path, why in (later or {}).items():
        keys = path.split(".")
        if (value := _found(document, keys)) is not None:
            planted = None if secret else judge_refused(keys, value, unknown=False)
            if planted is not None:
                raise _credential(text, where, planted)
            raise error_at(text, where, keys, why)
    problems: list[ErrorDetails] = []
    try:
        found = model.model_validate(document)
    except ValidationError as refused:
        # With the refused values: they are judged, and never shown.
        problems = refused.errors(include_url=False, include_context=True, include_input=True)
    planted = None if secret else _planted(document, problems)
    if planted is not None:
        raise _credential(text, where, planted)
    if problems:
        raise _first(text, where, model, problems)
    return found


def parse_toml(text: str, where: str, *, most: int = MAX_BYTES) -> dict[str, object]:
    """The values of a TOML document of at most ``most`` characters; a syntax error is a UsageError."""
    if len(text) > most:
        raise UsageError(f"{len(text)} characters, more than {most}", where=where, hint=f"correct {where}")
    if _DEEP_KEY.search(text):
        raise UsageError("nested too deeply", where=where, hint=f"correct {where}")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as broken:
        raise UsageError(f"not TOML: {broken}", where=where, hint=f"correct {where}") from None
    except ValueError:  # Python reads no whole number of more than some thousand digits
        why = "not TOML that this program reads: a number has too many digits"
        raise UsageError(why, where=where, hint=f"correct {where}") from None
    except RecursionError:
        raise UsageError("nested too deeply", where=where, hint=f"correct {where}") from None


def error_at(text: str, where: str, path: Sequence[str | int], what: str, *, hint: str = "") -> UsageError:
    """A UsageError whose place is file, line and dotted path."""
    return _error(UsageError, text, where, path, what=what, hint=hint or f"correct {where}")


def _error(
    kind: type[_Error], text: str, where: str, path: Sequence[str | int], *, what: str, hint: str
) -> _Error:
    line = line_of(text, path)
    place = f"{where}, line {line}" if line else where
    dotted = dotted_path(path)
    return kind(f"{dotted}: {what}" if dotted else what, where=place, hint=hint)


def _credential(text: str, where: str, planted: Planted) -> CredentialFound:
    return _error(CredentialFound, text, where, planted.path, what=str(planted), hint=HINT)


def _planted(document: dict[str, object], problems: Sequence[ErrorDetails]) -> Planted | None:
    """The first credential that a validator told, that stands anywhere, or that is a refused value too."""
    for problem in problems:
        error = problem.get("ctx", {}).get("error")
        if isinstance(error, CredentialRefused):
            return Planted(problem["loc"], error.rule, str(error))
    if (found := find_by_shape(document)) is not None:
        return found
    for problem in problems:
        if problem["type"] == "missing":
            continue  # its input is everything around it
        unknown = problem["type"] == "extra_forbidden"
        if (found := judge_refused(problem["loc"], problem["input"], unknown=unknown)) is not None:
            return found
    return None


def dotted_path(path: Sequence[str | int]) -> str:
    """``agents.claude-code`` or ``run.allow[1]``; a key that is not bare is quoted, as in TOML."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = part and all(c.isascii() and (c.isalnum() or c in "-_") for c in part)
            text += ("." if text else "") + (part if bare else '"' + part[:80] + '"')
    return text


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """The line, from 1, on which the key of this path stands; that of its nearest parent when it has none."""
    import tomlkit  # noqa: PLC0415  (only an error needs it)
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    keys = [part for part in path if isinstance(part, str)]
    while keys:
        try:
            document = tomlkit.parse(text)
            _mark(document, keys)
            marked = document.as_string()
        except (TOMLKitError, KeyError, AttributeError, TypeError):
            marked = ""  # a shape that tomlkit shows differently: the parent's line will do
        if _MARK in marked:
            return marked.count("\n", 0, marked.index(_MARK)) + 1
        keys.pop()
    return None


def _mark(document: object, keys: list[str]) -> None:
    """Put the mark before the key of this path, in the white space that tomlkit keeps."""
    from tomlkit.container import Container  # noqa: PLC0415
    from tomlkit.items import Item, Table  # noqa: PLC0415

    found: object = document
    for key in keys:
        inner = found if isinstance(found, Container) else getattr(found, "value", None)
        if not isinstance(inner, Container):
            raise KeyError(key)
        found = inner.item(key)
    if isinstance(found, Item):
        if isinstance(found, Table) and found.is_super_table():
            raise KeyError(keys[-1])
        found.trivia.indent += _MARK


def _found(document: object, keys: Sequence[str]) -> object:
    """The value at this path; None where there is none."""
    for key in keys:
        if not isinstance(document, dict) or key not in document:
            return None
        document = document[key]
    return document


def _first(text: str, where: str, model: type[BaseModel], problems: Sequence[ErrorDetails]) -> UsageError:
    """The first problem in the file; the others are counted, so that nobody thinks it was the only one."""
    # Each line costs a pass over the text: in a file that is wrong all over, some stand for the rest.
    looked_at = problems[: max(1, min(_PLACED, _PLACED_CHARACTERS // (len(text) + 1)))]
    # What stands there comes first: a name with a typing error is unknown, and the right one is missing too.
    first = min(
        looked_at, key=lambda problem: (problem["type"] == "missing", line_of(text, problem["loc"]) or 0)
    )
    what = _sentence(first)
    if first["type"] == "extra_forbidden":
        what += f"; expected one of {', '.join(_known_keys(model, first['loc'][:-1]))}"
    if len(problems) > 1:
        what += f" (and {len(problems) - 1} more)"
    return error_at(text, where, first["loc"], what)


def _known_keys(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """The keys of the table at this path."""
    found = model
    for part in path:
        if isinstance(part, int):
            continue  # an item of a list has the shape of the list's own field
        below = next(
            (field for name, field in found.model_fields.items() if part in (name, field.alias)), None
        )
        if below is None:
            break
        found = _model_in(below.annotation) or found
    return sorted(field.alias or name for name, field in found.model_fields.items())


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model that a field's type is, or holds, as in ``list[Model]``."""
    from pydantic import BaseModel  # noqa: PLC0415

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        if (found := _model_in(part)) is not None:
            return found
    return None


def _sentence(problem: ErrorDetails) -> str:
    kind = problem["type"]
    if kind == "extra_forbidden":
        return "unknown key"
    if kind == "missing":
        return "missing, and required"
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}"
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return message[:1].lower() + message[1:]
