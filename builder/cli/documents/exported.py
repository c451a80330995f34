"""What `export` prints with --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from builder.cli.documents import Document, Kind
from builder.cli.documents.shapes import DigestText, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedInTotoDocument(Document):
    """``folder``: where layout, links and the files of the steps were written. ``files``: their names."""

    KIND: ClassVar = Kind("export-in-toto", "export in-toto [IMAGE] DIR")

    image: DigestText
    folder: Text
    files: tuple[Text, ...]
