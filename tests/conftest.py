"""Which engines a run asks for: asked for and missing fails; not asked for is not collected, and said so."""

from __future__ import annotations

import pytest

ENGINES = ("docker", "podman")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engine",
        action="append",
        choices=ENGINES,
        default=None,
        help="run the real tests on this engine (repeatable); an engine that is missing is a failure",
    )


def engines_asked(config: pytest.Config) -> tuple[str, ...]:
    """The engines of ``--engine``, in a fixed order."""
    asked = config.getoption("--engine") or []
    return tuple(name for name in ENGINES if name in asked)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if engines_asked(config):
        return
    real = [item for item in items if item.get_closest_marker("real")]
    if real:
        config.hook.pytest_deselected(items=real)
        items[:] = [item for item in items if item not in real]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine_name" in metafunc.fixturenames:
        metafunc.parametrize("engine_name", engines_asked(metafunc.config), scope="session")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    asked = engines_asked(config)
    for name in ENGINES:
        if name not in asked:
            terminalreporter.write_line(f"untested: engine {name} (not asked for; use --engine {name})")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A skipped real test is a failure: what did not run must never look as if it had."""
    if report.skipped and "real" in report.keywords and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"a real test was skipped, which counts as failed: {report.longrepr}"
