"""A publisher's signed statement as a lock has it: who signed, and the bundle where it was checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAX_BUNDLE_BYTES: Final = 128 * 1024  # a real one is 5 to 20 kB
MAX_PUBLISHER: Final = 500
PUBLISHER: Final = re.compile(rf"[a-z][a-z0-9+.-]*:[\x21-\x7e]{{1,{MAX_PUBLISHER - 40}}}", re.ASCII)
ISSUER: Final = re.compile(r"https?://[\x21-\x7e]{1,400}", re.ASCII)
BUNDLE: Final = re.compile(
    r"(?:[A-Za-z0-9+/]{4})+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII
)  # of MAX_BUNDLE_BYTES at most, which MAX_BUNDLE_TEXT holds
MAX_BUNDLE_TEXT: Final = (MAX_BUNDLE_BYTES + 2) // 3 * 4


@dataclass(frozen=True, slots=True)
class Attestation:
    """``publisher``: the URI in the certificate that signed. ``issuer``: whose login the certificate is for.

    ``bundle``: base64 of the sigstore bundle, so that whoever has the lock can check it again, offline.
    Empty: nobody who made the lock expected this publisher, so the statement counts for nothing.
    """

    publisher: str
    issuer: str
    bundle: str = ""
