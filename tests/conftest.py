"""Which engines and sets a run asks for: asked for and missing fails; not asked for is left out, and said."""

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
    parser.addoption(
        "--long", action="store_true", help="run the tests marked long too (minutes each, on the real image)"
    )


def engines_asked(config: pytest.Config) -> tuple[str, ...]:
    """The engines of ``--engine``, in a fixed order."""
    asked = config.getoption("--engine") or []
    return tuple(name for name in ENGINES if name in asked)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = ["real"] if not engines_asked(config) else []
    left_out += ["long"] if not config.getoption("--long") else []
    out = [item for item in items if any(item.get_closest_marker(name) for name in left_out)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine_name" in metafunc.fixturenames:
        metafunc.parametrize("engine_name", engines_asked(metafunc.config), scope="session")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    asked = engines_asked(config)
    for name in ENGINES:
        if name not in asked:
            terminalreporter.write_line(f"untested: engine {name} (not asked for; use --engine {name})")
    if not config.getoption("--long"):
        terminalreporter.write_line("untested: what is marked long (not asked for; use --long)")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A skipped real test is a failure: what did not run must never look as if it had."""
    if report.skipped and "real" in report.keywords and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"a real test was skipped, which counts as failed: {report.longrepr}"
