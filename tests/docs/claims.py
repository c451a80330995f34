"""What the README and the explanations claim, word for word, and the tests that fail where it is not so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Claim:
    """``text`` stands in ``page`` like this, but for ends of lines and marks of links."""

    page: str
    text: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """For people."""
        return self.page.rpartition("/")[2].removesuffix(".md")


_README: Final = "README.md"
_EXPLAINED: Final = "docs/explanation/"
_PIPELINE: Final = _EXPLAINED + "pipeline.md"
_AUDIT: Final = _EXPLAINED + "layer-audit.md"
_IMAGE: Final = _EXPLAINED + "image-contents.md"
_AUTHENTIC: Final = _EXPLAINED + "authenticity.md"
_REPOSITORY: Final = _EXPLAINED + "repository.md"
_MODEL: Final = _EXPLAINED + "threat-model.md"
_UNIT: Final = "tests/unit/"
_CHILD: Final = _UNIT + "provenance/scan/test_child.py::"
_VERIFY: Final = _UNIT + "provenance/test_verify.py::"

CLAIMS: Final = (
    Claim(
        _README,
        "check without a network",
        (_UNIT + "builder/test_no_socket.py::test_verify_opens_no_socket",),
    ),
    Claim(
        _README,
        "refuses any image it cannot prove",
        (
            _UNIT + "backend/test_admission.py::test_no_mode_skips_the_summary",
            _VERIFY + "test_no_evidence_at_all",
        ),
    ),
    Claim(
        _README,
        "flips one bit in a copy and shows that the copy is refused",
        (_VERIFY + "test_one_byte_of_any_blob_of_the_image_is_found",),
    ),
    Claim(
        _PIPELINE,
        "a child process without keys",
        (_CHILD + "test_a_crash_a_time_out_and_nonsense_are_incomplete_and_never_clean",),
    ),
    Claim(
        _PIPELINE,
        "believe a name, a date or an annotation",
        (
            _UNIT + "provenance/test_attacks.py::test_23_annotations_that_lie_have_no_effect",
            _VERIFY + "test_age_is_by_our_clock",
        ),
    ),
    Claim(
        _PIPELINE,
        "accept a version that is not the pinned one",
        (_VERIFY + "test_a_detection_that_disagrees", _UNIT + "backend/test_detect.py"),
    ),
    Claim(
        _PIPELINE, "start an image that was not read back as planned", (_UNIT + "backend/test_readback.py",)
    ),
    Claim(
        _PIPELINE,
        "the ledger that remembers it is only an index",
        (_UNIT + "provenance/test_ledger.py", _UNIT + "builder/test_evidence.py"),
    ),
    Claim(
        _AUDIT,
        "Where readers of a tar could differ, the whole layer is refused",
        (_UNIT + "provenance/test_stricttar.py::test_the_audit_s_own_reader_ends_with_a_refusal",),
    ),
    Claim(
        _AUDIT,
        "bytes that no reader of the tar would show (padding, tails, second names)",
        (_UNIT + "provenance/audit/test_audit.py::test_any_change_of_any_entry_is_found",),
    ),
    Claim(
        _IMAGE,
        "Install scripts run only for the packages that `builder.toml` names",
        (_UNIT + "images/test_render.py::test_scripts_that_may_not_run_are_not_rendered",),
    ),
    Claim(
        _IMAGE,
        "the files belong to root and the agent cannot write them",
        (_UNIT + "images/test_render.py::test_agents_own_nothing_that_runs",),
    ),
    Claim(
        _AUTHENTIC,
        "A false signature of a pinned key stops the lock",
        (_UNIT + "builder/test_vouching.py::test_a_false_signature_stops_the_lock_and_names_the_pin",),
    ),
    Claim(
        _AUTHENTIC,
        "they are never fetched",
        (_UNIT + "provenance/test_npm_signatures.py::test_a_registry_may_not_bring_its_own_key",),
    ),
    Claim(
        _REPOSITORY,
        "No other git runs in your repository",
        (_UNIT + "backend/workspace/test_canaries.py::test_nothing_of_the_operators_repository_runs",),
    ),
    Claim(
        _REPOSITORY,
        "A tag or an object twice is refused",
        (_UNIT + "backend/workspace/test_hostile_export.py::test_an_attack_is_refused_and_leaves_nothing",),
    ),
    Claim(
        _MODEL,
        "a policy that others may write is refused",
        (_UNIT + "provenance/test_policy.py::test_what_others_can_write_is_refused",),
    ),
    Claim(
        _MODEL,
        "which may not lie under `builder.toml`'s directory",
        (_UNIT + "provenance/test_policy.py::test_a_policy_at_or_under_builder_toml_is_refused",),
    ),
    Claim(
        _MODEL,
        "a signature names one platform manifest digest",
        (_UNIT + "provenance/test_attacks.py::test_08b_a_subject_that_matches_in_part",),
    ),
    Claim(
        _MODEL,
        "admission also needs the verifier's summary, made with another key",
        (
            _VERIFY + "test_admission_needs_the_verifiers_summary",
            _VERIFY + "test_only_the_verifiers_key_summarises",
        ),
    ),
    Claim(
        _MODEL,
        "no byte of it is free",
        (_UNIT + "builder/test_team_archive.py::test_no_bit_of_it_is_free",),
    ),
    Claim(
        _MODEL,
        "one strict form of CONNECT",
        (_UNIT + "backend/network/test_connect_head.py::test_what_can_be_read_in_two_ways_is_refused",),
    ),
    Claim(
        _MODEL,
        "no argument, variable, label, journal or record holds it",
        (_UNIT + "backend/projection/test_projecting.py::test_nothing_that_is_kept_or_typed_holds_a_value",),
    ),
    Claim(
        _MODEL,
        "of a login the refresh token stays outside",
        (_UNIT + "backend/projection/test_credentials.py::test_the_refresh_token_stays_with_the_operator",),
    ),
    Claim(
        _MODEL,
        "only the launcher's policy does, by a name that the lock must have",
        (_UNIT + "backend/projection/test_integrations.py::test_a_request_cannot_turn_anything_on",),
    ),
    Claim(
        _MODEL,
        "everything passes the redactor",
        (
            _UNIT + "images/test_redaction.py",
            _UNIT + "backend/projection/test_projecting.py::test_no_output_shows_what_was_projected",
        ),
    ),
)
