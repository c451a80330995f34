"""What a command prints with --json: a document of a kind that has a published schema, and nothing else."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RESULT_SCHEMA: Final = "https://agent-image-builder.example/result/v1"


class Answer(StrEnum):
    """VERDICT: it is there when it is a bad one too; the object then says ``ok: false`` and an ``error``."""

    DONE = "done"
    VERDICT = "verdict"


@dataclass(frozen=True, slots=True)
class Kind:
    """``name``: of its schema (docs/reference/schemas). ``typed``: what stands after ``builder``."""

    name: str
    typed: str
    answer: Answer = Answer.DONE

    @property
    def identity(self) -> str:
        """What its schema is called, and ``result`` in each object says. Another shape is another version."""
        return f"https://agent-image-builder.example/schemas/{self.name}/v1"

    @property
    def command(self) -> str:
        """The first word: ``command`` in each object."""
        return self.typed.split()[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One answer of one command. Its JSON Schema is made of the fields of the class and their types.

    A field that is called like a word of Python has an underscore behind its name, which is not printed.
    """

    KIND: ClassVar[Kind]

    def to_json(self) -> dict[str, object]:
        """What is printed of it: which kind it is, and the fields."""
        return {"result": self.KIND.identity, **printed(self)}


def printed(document: DataclassInstance) -> dict[str, object]:
    """The fields by their printed names, in their order; what is inside of it too."""

    def named(fields: list[tuple[str, object]]) -> dict[str, object]:
        return {name.rstrip("_"): value for name, value in fields}

    return asdict(document, dict_factory=named)
