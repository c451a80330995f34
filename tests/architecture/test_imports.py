"""The house rules a reader relies on: one direction of imports, one importer, one maker of each permit."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from images import errors

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("images", "provenance", "backend", "builder")

# module prefix -> the only files that may import it
ONLY_IMPORTERS = {
    "subprocess": {"backend/runner.py"},
    "python_on_whales": {
        "backend/engines/docker.py",
        "backend/engines/podman.py",
        "builder/building/buildkit.py",
    },
    "securesystemslib": {"provenance/signing.py"},
    "sigstore": {"provenance/keyless.py", "provenance/keyless_signing.py"},
    "pkcs11": {"provenance/pkcs11_signing.py"},
    "pyperscan": {"provenance/scan/engine.py"},
    "secretstorage": {"backend/logins/keyring.py"},
    "jeepney": {"backend/logins/keyring.py"},
    "shtab": {"builder/cli/verbs/completion_verb.py"},
    # A run has no network of its own: the controller opens its connections, here and nowhere else.
    "socket": {"backend/network/serving.py"},
    "urllib.request": set(),
    "http.client": set(),
}

# permit type -> the only module that may call its constructor
PERMIT_MAKERS = {
    "OciImage": "provenance/layout.py",
    "CleanImage": "provenance/scan/accept.py",
    "DetectedImage": "backend/detect.py",
    "Statement": "provenance/statements.py",
    "Bundle": "provenance/signing.py",
    "VerifiedImage": "provenance/verify.py",
    "AdmittedImage": "backend/admission.py",
    "LaunchPlan": "backend/plan.py",
    "ElsewherePlan": "backend/plan.py",
    "LaunchRecord": "backend/records.py",
    "Credential": "backend/projection/credentials.py",
    "Projection": "backend/projection/placing.py",
    "Setup": "backend/projection/integrations.py",
    "ServerSecret": "backend/projection/server_secrets.py",
    "FetchedCommit": "backend/workspace/reading.py",
    "MaterialisedTree": "backend/workspace/materialise.py",
    "ImportedCommit": "backend/workspace/importing.py",
    "PreparedSource": "backend/workspace/prepared.py",
}

# Who takes a secret out of its wrapper where agents run: whoever lays it out, whoever puts it in place,
# whoever keeps a login, and whoever logs in to the operator's own proxy, outside of every container.
REVEALERS = {
    "backend/logins/store.py",
    "backend/network/serving.py",
    "backend/projection/placing.py",
    "backend/projection/projecting.py",
}

FORBIDDEN_NAMES = {"utils", "helpers", "common", "core", "base", "manager", "service", "types", "constants"}
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60


@functools.cache
def modules() -> tuple[tuple[str, ast.Module, str], ...]:
    """Every module: its name, its syntax tree, its text. Parsed once for all tests."""
    paths = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
    texts = [(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths]
    return tuple((name, ast.parse(text), text) for name, text in texts)


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def called(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func
            if isinstance(name, ast.Name):
                yield name.id, node.lineno
            elif isinstance(name, ast.Attribute):
                yield name.attr, node.lineno


def test_imports_point_one_way() -> None:
    wrong = []
    for name, tree, _ in modules():
        own = LAYERS.index(name.split("/")[0])
        for target in imported(tree):
            top = target.split(".")[0]
            if top in LAYERS and LAYERS.index(top) > own:
                wrong.append(f"{name} imports {target}")
    assert not wrong


@pytest.mark.parametrize("prefix", sorted(ONLY_IMPORTERS))
def test_only_importer(prefix: str) -> None:
    importers = {
        name
        for name, tree, _ in modules()
        if any(target == prefix or target.startswith(prefix + ".") for target in imported(tree))
    }
    assert importers <= ONLY_IMPORTERS[prefix]


@pytest.mark.parametrize("permit", sorted(PERMIT_MAKERS))
def test_each_permit_is_constructed_in_one_module(permit: str) -> None:
    makers = {name for name, tree, _ in modules() if any(call == permit for call, _ in called(tree))}
    assert makers == {PERMIT_MAKERS[permit]}


def test_a_running_agents_secret_is_revealed_in_few_modules() -> None:
    found = {
        name
        for name, tree, _ in modules()
        if name.startswith("backend/") and any(call == "reveal" for call, _ in called(tree))
    }
    assert found == REVEALERS


def test_images_is_pure() -> None:
    forbidden = {"os", "subprocess", "socket", "time", "datetime", "random", "secrets", "tempfile", "shutil"}
    wrong = [
        f"{name} imports {target}"
        for name, tree, _ in modules()
        if name.startswith("images/")
        for target in imported(tree)
        if target.split(".")[0] in forbidden
        and target not in {"datetime", "datetime.datetime", "datetime.UTC"}
    ]
    assert not wrong


def test_environment_exit_and_wall_clock_belong_to_the_command_line() -> None:
    wrong = []
    for name, tree, _ in modules():
        if name.startswith("builder/cli/"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                pair = f"{node.value.id}.{node.attr}"
                if pair in {
                    "os.environ",
                    "os.getenv",
                    "sys.exit",
                    "time.time",
                    "datetime.now",
                    "datetime.utcnow",
                }:
                    wrong.append(f"{name}:{node.lineno} uses {pair}")
    assert not wrong


def test_exit_codes_are_unique_and_each_error_has_its_own() -> None:
    def leaves(cls: type[errors.BuilderError]) -> Iterator[type[errors.BuilderError]]:
        yield cls
        for sub in cls.__subclasses__():
            yield from leaves(sub)

    classes = [cls for cls in leaves(errors.BuilderError) if cls.__module__ == "images.errors"]
    codes = [cls.code for cls in classes]
    assert len(set(codes)) == len(codes)
    assert set(codes) | {errors.ExitCode.DONE, errors.ExitCode.RUN_FAILED} == set(errors.ExitCode)


def test_every_module_states_its_single_responsibility() -> None:
    assert not [name for name, tree, _ in modules() if not ast.get_docstring(tree)]


def test_sizes() -> None:
    wrong = []
    for name, tree, text in modules():
        lines = text.count("\n")
        if lines > MAX_MODULE_LINES:
            wrong.append(f"{name} has {lines} lines")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.end_lineno:
                length = node.end_lineno - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    wrong.append(f"{name}:{node.lineno} {node.name} has {length} lines")
    assert not wrong


def test_no_module_has_a_name_that_explains_nothing() -> None:
    assert not [name for name, _, _ in modules() if Path(name).stem in FORBIDDEN_NAMES]


def test_no_catch_all() -> None:
    wrong = []
    for name, tree, _ in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None
                or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"})
            ):
                wrong.append(f"{name}:{node.lineno}")
    # the one place that turns a bug into a redacted report file and exit code 1
    assert [place for place in wrong if not place.startswith("builder/cli/__init__.py")] == []
