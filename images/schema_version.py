"""The number of a format's version in a model: 1, and not true or 1.0, which Python takes for the same."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator


def _whole(value: object) -> object:
    if type(value) is not int:
        raise ValueError("expected a whole number")
    return value


One: TypeAlias = Annotated[Literal[1], BeforeValidator(_whole)]
