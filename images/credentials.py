"""What a credential looks like: the one table of shapes, and the type that hides a value."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NoReturn

# Grows with every change of a table that can find more or fewer credentials; policy can ask for a minimum.
RULESET_VERSION: Final = 2
# The window that one match is judged in: a PEM of an RSA key of 16384 bits is 12.6 kB.
MAX_CREDENTIAL: Final = 16 * 1024


class Secret:
    """Bytes that never show: not in repr, str, format, pickle or copy. ``reveal`` is the only way out."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    @classmethod
    def of_text(cls, value: str) -> Secret:
        """From text, as UTF-8."""
        return cls(value.encode())

    def reveal(self) -> bytes:
        """The value. Call it at the last moment, and keep no copy."""
        return self._value

    def lower(self) -> Secret:
        """The same in small letters, as what is compared without regard to case holds it."""
        return Secret(self._value.lower())

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> NoReturn:
        raise TypeError("a Secret has no hash: it would tell two equal values apart from others")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied")

    def __bool__(self) -> bool:
        return bool(self._value)


class Confirm(StrEnum):
    """How a candidate is judged, beyond its letters. All but the key formats also refuse placeholders."""

    LETTERS = "letters"  # prefix and alphabet suffice
    CRC32 = "crc32"  # GitHub and npm: the last six letters are the CRC-32 of the thirty before them
    JWT = "jwt"  # header and payload are JSON objects, the header names an algorithm
    PEM = "pem"  # the body is base64 of a private key
    DER = "der"  # the bytes around are a private key's ASN.1
    BECH32 = "bech32"  # the check sum of BIP 173 holds
    KNOWN = "known"  # the operator's own value, letter for letter


class LeftEdge(StrEnum):
    """What may stand before the first letter."""

    ANY = "any"
    WORD = "word"  # no letter or digit, so that ``task-…`` is not ``sk-…``


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of credential, free of any engine's dialect.

    A match is one of ``prefixes``, then at least ``least`` and at most ``most`` letters of ``alphabet`` (the
    inside of a character class), then ``tail`` (a regular expression). ``mark`` is a literal that follows
    exactly ``least`` letters. There is no right edge: a key that a NUL ends is found like a quoted one.
    """

    id: str
    prefixes: tuple[bytes, ...]
    alphabet: str
    least: int
    most: int
    confirm: Confirm = Confirm.LETTERS
    left: LeftEdge = LeftEdge.ANY
    mark: bytes = b""
    tail: str = ""

    @property
    def pattern(self) -> bytes:
        """The whole credential as a Python regular expression; its one group is what follows the prefix."""
        starts = b"|".join(re.escape(prefix) for prefix in self.prefixes)
        return b"(?:" + starts + b")(" + self.rest + b")"

    @property
    def rest(self) -> bytes:
        """What follows any of the prefixes, as a Python regular expression."""
        run = f"[{self.alphabet}]{{{self.least},{self.most}}}".encode() if self.most else b""
        if self.mark:
            run = f"[{self.alphabet}]{{{self.least}}}".encode() + re.escape(self.mark)
        return run + self.tail.encode()


_WORD: Final = "A-Za-z0-9"
_URL64: Final = "A-Za-z0-9_\\-"
_HEX: Final = "0-9a-f"
_KEY_KINDS: Final = (b"", b"RSA ", b"EC ", b"DSA ", b"ENCRYPTED ", b"OPENSSH ", b"SSH2 ENCRYPTED ")
_PEM_STARTS: Final = (
    *(b"-----BEGIN " + kind + b"PRIVATE KEY-----" for kind in _KEY_KINDS),
    b"-----BEGIN PGP PRIVATE KEY BLOCK-----",
)
# PKCS#8 of both versions, by its algorithm identifier and the octet string's tag after it.
_PKCS8_ALGORITHMS: Final = (
    "300d06092a864886f70d010101050004",  # RSA
    "301306072a8648ce3d020106082a8648ce3d03010704",  # P-256
    "301006072a8648ce3d020106052b8104002204",  # P-384
    "301006072a8648ce3d020106052b8104002304",  # P-521
    "300506032b657004220420",  # Ed25519
    "300506032b656e04220420",  # X25519
)
# SEC 1 of P-256; PKCS#1 by the first bytes of a modulus of 1024, 2048, 3072 and 4096 bits.
_OTHER_DER: Final = (
    "30770201010420",
    "02010002818100",
    "0201000282010100",
    "0201000282018100",
    "0201000282020100",
)
_DER_STARTS: Final = tuple(
    bytes.fromhex(text)
    for text in (*("02010" + version + rest for version in "01" for rest in _PKCS8_ALGORITHMS), *_OTHER_DER)
)
_JWT_STARTS: Final = tuple(
    f"eyJ{rest}".encode()
    for rest in ("hbGciOi", "0eXAiOi", "raWQiOi", "qa3UiOi", "jdHkiOi", "lbmMiOi", "4NXQiOi")
)
_GITLAB: Final = (
    "glpat",
    "gldt",
    "glrt",
    "glptt",
    "glcbt",
    "glft",
    "glsoat",
    "glagent",
    "glimt",
    "gloas",
    "glffct",
)


def _letters(
    id: str, prefixes: str, alphabet: str, least: int, most: int = 512, *, word: bool = False
) -> Shape:
    starts = tuple(prefix.encode() for prefix in prefixes.split())
    return Shape(id, starts, alphabet, least, most, left=LeftEdge.WORD if word else LeftEdge.ANY)


# Lengths are the issuers' own where they publish them, else a little less than what was seen.
SHAPES: Final[tuple[Shape, ...]] = (
    # Model providers and agents. No token-regex engine knows Claude Code's OAuth pair.
    _letters("anthropic-oauth", "sk-ant-oat01- sk-ant-ort01- sk-ant-oat02- sk-ant-ort02-", _URL64, 40),
    _letters(
        "anthropic-api-key",
        "sk-ant-api03- sk-ant-api04- sk-ant-admin01- sk-ant-sid01- sk-ant-sid02-",
        _URL64,
        40,
    ),
    _letters("openai-api-key", "sk-proj- sk-svcacct- sk-admin- sk-service-", _URL64, 40),
    Shape(
        "openai-legacy-key",
        (b"sk-",),
        _WORD,
        20,
        20,
        left=LeftEdge.WORD,
        mark=b"T3BlbkFJ",
        tail="[A-Za-z0-9]{20}",
    ),
    _letters("openrouter-key", "sk-or-v1-", _HEX, 64, 64),
    _letters("google-api-key", "AIza", _URL64, 35, 35, word=True),
    _letters("google-oauth-client-secret", "GOCSPX-", _URL64, 28, 28),
    _letters("google-access-token", "ya29.", "A-Za-z0-9_.\\-", 40, word=True),
    _letters("google-refresh-token", "1//0", _URL64, 60, 200, word=True),
    _letters("huggingface-token", "hf_ api_org_", "A-Za-z", 34, 40, word=True),
    _letters("groq-key", "gsk_", _WORD, 52, 52, word=True),
    _letters("xai-key", "xai-", _WORD, 80, 80, word=True),
    _letters("cerebras-key", "csk-", "a-z0-9", 48, 48, word=True),
    _letters("perplexity-key", "pplx-", _WORD, 48, 56, word=True),
    _letters("replicate-token", "r8_", _WORD, 37, 37, word=True),
    _letters("nvidia-key", "nvapi-", _URL64, 60, 80, word=True),
    _letters("tavily-key", "tvly-dev- tvly-prod-", _URL64, 32, 64, word=True),
    # Code hosting and packages.
    Shape(
        "github-token",
        (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"),
        _WORD,
        36,
        36,
        Confirm.CRC32,
    ),
    _letters("github-fine-grained", "github_pat_", "A-Za-z0-9_", 82, 82),
    _letters("gitlab-token", " ".join(f"{kind}-" for kind in _GITLAB), "A-Za-z0-9_.\\-", 20, 320, word=True),
    Shape("npm-token", (b"npm_",), _WORD, 36, 36, Confirm.CRC32),
    _letters("pypi-token", "pypi-AgEIcHlwaS5vcmc pypi-AgENdGVzdC5weXBpLm9yZw", _URL64, 50),
    _letters("rubygems-token", "rubygems_", _HEX, 48, 48, word=True),
    _letters("docker-hub-token", "dckr_pat_ dckr_oat_", _URL64, 27, 64),
    _letters("artifactory-key", "AKCp5 AKCp8", _WORD, 60, 80, word=True),
    # Clouds and platforms.
    _letters("aws-access-key-id", "AKIA ASIA", "A-Z2-7", 16, 16, word=True),
    _letters("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", _HEX, 64, 64),
    _letters("azure-storage-key", "AccountKey=", "A-Za-z0-9+/", 86, 86),
    _letters("alibaba-key-id", "LTAI5t", _WORD, 18, 18, word=True),
    _letters("databricks-token", "dapi", _HEX, 32, 32, word=True),
    _letters("vault-token", "hvs. hvb. hvr.", _URL64, 80, 400, word=True),
    _letters(
        "doppler-token", "dp.pt. dp.ct. dp.st. dp.sa. dp.scim. dp.audit.", "A-Za-z0-9_.\\-", 40, 80, word=True
    ),
    _letters("pulumi-token", "pul-", _HEX, 40, 40, word=True),
    _letters("vercel-token", "vcp_ vck_ vci_ vca_ vcr_", _WORD, 50, 70, word=True),
    _letters("netlify-token", "nfp_ nfc_ nfo_", _WORD, 36, 40, word=True),
    _letters("supabase-key", "sb_secret_", _URL64, 31, 48, word=True),
    _letters("supabase-token", "sbp_", _HEX, 40, 40, word=True),
    _letters("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", "A-Za-z0-9_.\\-", 32, 64),
    _letters("fly-token", "FlyV1_ fm2_ fo1_", "A-Za-z0-9_+/=\\-", 43, word=True),
    # Services.
    _letters(
        "slack-token",
        "xoxb- xoxp- xoxa- xoxr- xoxs- xoxc- xoxd- xoxe- xoxe.xoxp- xoxe.xoxb- xapp-",
        "A-Za-z0-9.\\-",
        30,
    ),
    Shape(
        "slack-webhook",
        (b"hooks.slack.com/services/T", b"hooks.slack.com\\/services\\/T", b"hooks.slack.com/workflows/T"),
        "A-Za-z0-9/\\\\",
        30,
        96,
    ),
    _letters(
        "discord-webhook", "discord.com/api/webhooks/ discordapp.com/api/webhooks/", "A-Za-z0-9_/\\-", 80, 100
    ),
    _letters("stripe-key", "sk_live_ rk_live_ sk_test_ rk_test_", _WORD, 24, 200, word=True),
    _letters("stripe-webhook-secret", "whsec_", "A-Za-z0-9+/", 32, 64, word=True),
    Shape(
        "sendgrid-key",
        (b"SG.",),
        _URL64,
        22,
        22,
        left=LeftEdge.WORD,
        mark=b".",
        tail="[A-Za-z0-9_\\-]{43}",
    ),
    _letters("shopify-token", "shpat_ shpca_ shppa_ shpss_", "a-fA-F0-9", 32, 32),
    _letters("linear-key", "lin_api_ lin_oauth_", _WORD, 40, 64),
    _letters("notion-token", "ntn_", _WORD, 43, 48, word=True),
    _letters("postman-key", "PMAK-", "a-f0-9\\-", 59, 59),
    _letters("grafana-token", "glsa_ glc_", "A-Za-z0-9_+/=", 40, 400, word=True),
    _letters("atlassian-token", "ATATT3xFfGF0 ATCTT3xFfGF0 ATBBT3xFfGF0", "A-Za-z0-9_=\\-", 100, 400),
    _letters("sentry-token", "sntrys_ sntryu_", "A-Za-z0-9_+/=\\-", 64),
    _letters("new-relic-key", "NRAK-", "A-Z0-9", 27, 27),
    _letters("figma-token", "figd_ figo_", _URL64, 40, 64, word=True),
    _letters("onepassword-token", "ops_eyJ", "A-Za-z0-9_+/=\\-", 200, 2000),
    _letters("circleci-token", "CCIPAT_ CCIPRJ_", "A-Za-z0-9_", 40, 100),
    _letters("buildkite-token", "bkua_", _HEX, 40, 40, word=True),
    _letters("mailgun-key", "key-", _HEX, 32, 32, word=True),
    _letters("square-token", "sq0atp- sq0csp-", _URL64, 22, 64),
    Shape("airtable-token", (b"pat",), _WORD, 14, 14, left=LeftEdge.WORD, mark=b".", tail="[0-9a-f]{64}"),
    # Formats.
    Shape(
        "jwt",
        _JWT_STARTS,
        _URL64,
        8,
        4096,
        Confirm.JWT,
        tail="\\.eyJ[A-Za-z0-9_\\-]{8,8192}\\.[A-Za-z0-9_\\-]{8,2048}",
    ),
    Shape("private-key", _PEM_STARTS, "", 0, 0, Confirm.PEM),
    Shape("private-key-der", _DER_STARTS, "", 0, 0, Confirm.DER),
    Shape(
        "putty-private-key",
        (b"PuTTY-User-Key-File-2: ", b"PuTTY-User-Key-File-3: "),
        "A-Za-z0-9\\-",
        5,
        40,
        tail="\\s{1,4}Encryption: [a-z0-9\\-]{4,20}",
    ),
    Shape("age-secret-key", (b"AGE-SECRET-KEY-1",), "02-9AC-HJ-NP-Z", 58, 58, Confirm.BECH32),
    _letters("age-plugin-identity", "AGE-PLUGIN-", "A-Z0-9\\-", 58, 200),
    Shape("nostr-secret-key", (b"nsec1",), "02-9ac-hj-np-z", 58, 58, Confirm.BECH32, LeftEdge.WORD),
)
