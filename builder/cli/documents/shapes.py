"""What the schemas of documents say of a value beyond its type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any


class Says:
    """Keywords of JSON Schema for an annotated type. Read where schemas are made; nothing is checked here."""

    def __init__(self, **keywords: object) -> None:
        self.keywords = keywords

    def __get_pydantic_json_schema__(
        self, schema: object, made_of: Callable[[Any], dict[str, object]]
    ) -> dict[str, object]:
        return made_of(schema) | self.keywords


class Follows(Says):
    """The value follows a schema that has a page of its own, whatever its type says."""

    def __get_pydantic_json_schema__(self, _schema: object, _made_of: object) -> dict[str, object]:
        return self.keywords


DigestText = Annotated[str, Says(pattern="^sha256:[0-9a-f]{64}$")]
Text = Annotated[str, Says(minLength=1)]
Count = Annotated[int, Says(minimum=0)]
