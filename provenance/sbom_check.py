"""Check 21: what a trusted bill of materials says of an image's artifacts is what the lock says."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from provenance.checks import Check, CheckId, failed, not_performed, passed
from provenance.evidence import Accepted, Evidence
from provenance.predicates import SBOM_KEY, SBOM_LOCK, SBOM_TYPE, SbomComponent, SbomPredicate
from provenance.sbom import BASE_REF, INSTALLED, locked_components

if TYPE_CHECKING:
    from images.lock import Lock
    from images.oci import OciImage, Platform
    from images.strictjson import JsonValue
    from provenance.expectations import Matched


def sbom_agrees(
    evidence: Evidence, matched: Matched | None, image: OciImage
) -> tuple[Accepted | None, Check]:
    """Every trusted bill about the expected lock lists exactly its artifacts, with their hashes.

    Packages of the base are not compared: the base itself is, by check 8. An image that was built before
    there were bills has none, and needs none.
    """
    if matched is None or matched.lock is None or image.platform not in matched.lock.platforms:
        return None, not_performed(CheckId.SBOM, "no lock to compare with")
    lock, chosen = matched.lock, None
    for one in evidence.of_type(SBOM_TYPE):
        bill = cast(SbomPredicate, one.predicate)
        if bill.metadata.property(SBOM_LOCK) != matched.lock_digest:
            continue  # of the same image under another lock, which is not asked for here
        problem = _problem(bill, lock, image)
        if problem:
            return None, failed(CheckId.SBOM, f"{problem} (statement {one.digest})")
        chosen = chosen or one
    if chosen is None:
        return None, not_performed(CheckId.SBOM, "no trusted bill of materials of this lock")
    count = len(cast(SbomPredicate, chosen.predicate).components)
    return chosen, passed(CheckId.SBOM, f"{count} components, every artifact of the lock with its hash")


def _problem(bill: SbomPredicate, lock: Lock, image: OciImage) -> str:
    from images.key import content_key  # noqa: PLC0415

    about = bill.metadata.component
    if [(one.alg, one.content) for one in about.hashes] != [("SHA-256", image.digest.hex)]:
        return "it is about another image"
    if bill.metadata.property(SBOM_KEY) != content_key(lock, image.platform):
        return "its content key is not the lock's"
    return _difference(bill.components, lock, image.platform)


def _difference(listed: tuple[SbomComponent, ...], lock: Lock, platform: Platform) -> str:
    found = {component.bom_ref: component for component in listed}
    if len(found) != len(listed):
        return "two components have one reference"
    wanted = locked_components(lock, platform)
    own = {ref for ref in found if ref != BASE_REF and not ref.startswith(INSTALLED)}
    if missing := sorted(wanted.keys() - own):
        return f"{len(missing)} artifacts of the lock are not in it, such as {missing[0][:200]}"
    if more := sorted(own - wanted.keys()):
        return f"{len(more)} components are not in the lock, such as {more[0][:200]!r}"
    different = [ref for ref, wants in wanted.items() if not _same(found[ref], wants)]
    return f"{different[0][:200]} is another one in the lock" if different else ""


def _same(component: SbomComponent, wants: dict[str, JsonValue]) -> bool:
    """By name, version and hashes, and by package URL up to its qualifiers, which name a distribution."""
    hashes = [{"alg": one.alg, "content": one.content} for one in component.hashes]
    return (
        component.name == wants["name"]
        and component.version == wants.get("version", "")
        and hashes == wants.get("hashes", [])
        and _bare(component.purl) == _bare(str(wants["purl"]))
    )


def _bare(purl: str) -> str:
    """Without qualifiers; of a Debian package without the namespace, which is the base's distribution."""
    bare = purl.partition("?")[0]
    return "pkg:deb/" + bare.rpartition("/")[2] if bare.startswith("pkg:deb/") else bare
