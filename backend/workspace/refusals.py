"""Why the git workspace refuses: two closed sets of reasons, each one documented and tested."""

from __future__ import annotations

from enum import StrEnum

from images.errors import UsageError, VerifyFailed


class SourceReason(StrEnum):
    """Why a commit cannot be read from the operator's repository."""

    NOT_A_REPOSITORY = "not-a-repository"
    UNREADABLE = "unreadable"
    FOREIGN_POINTER = "foreign-pointer"
    PARTIAL_CLONE = "partial-clone"
    UNSUPPORTED_FORMAT = "unsupported-format"
    NOT_A_COMMIT_ID = "not-a-commit-id"
    NO_SUCH_COMMIT = "no-such-commit"
    FETCH = "fetch-failed"


class CandidateReason(StrEnum):
    """Why a tree is not written, or what a container exported is not taken."""

    PRODUCER = "export-failed-inside"
    FRAME = "bad-frame"
    MANIFEST = "bad-manifest"
    TOO_LARGE = "too-large"
    PACK = "bad-pack"
    PREREQUISITES = "missing-prerequisites"
    NOT_DESCENDED = "not-descended-from-base"
    UNREACHABLE = "unreachable-objects"
    OBJECT_KIND = "wrong-object-kind"
    NAME = "refused-name"
    MODE = "refused-mode"
    TREE = "bad-tree"
    DIFFERENT_TREE = "different-tree"
    TAKEN = "quarantine-taken"
    NO_CANDIDATE = "no-such-candidate"


class SourceRefused(UsageError):
    """The operator's repository cannot be read as it is; ``reason`` is a :class:`SourceReason`."""

    def __init__(self, reason: SourceReason, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint, reason=reason.value)


class CandidateRefused(VerifyFailed):
    """A commit or an export is not what we take; ``reason`` is a :class:`CandidateReason`.

    What is left behind is nothing: no file, no object, no reference.
    """

    def __init__(self, reason: CandidateReason, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint, reason=reason.value)
