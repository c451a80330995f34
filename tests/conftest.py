"""Which engines and sets a run asks for: asked for and missing fails; not asked for is left out, and said."""

from __future__ import annotations

import signal
from typing import Final

import hypothesis
import pytest

from tests.joined import ASKED, report_untested

# How long one example takes says how busy the machine is, and nothing about the program. Nothing is kept of
# a run: the checkout may be read-only.
hypothesis.settings.register_profile("ours", deadline=None, database=None)
hypothesis.settings.load_profile("ours")

# A shell that starts a run in the background has it, and all that it starts, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What `--engine` of the tests names -> the product that the command line and the dialects name.
ENGINES: Final = {"docker": "docker", "docker-rootless": "docker", "podman": "podman"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engine",
        action="append",
        choices=tuple(ENGINES),
        default=None,
        help="run the real tests on this engine (repeatable); an engine that is missing is a failure. "
        "docker is the rootful one; docker-rootless is found by DOCKER_HOST, so each needs a run of its own",
    )
    parser.addoption(
        "--long", action="store_true", help="run the tests marked long too (minutes each, on the real image)"
    )
    parser.addoption(
        "--part", action="store_true", help="a part of a larger run, which says what was not tested"
    )


def pytest_configure(config: pytest.Config) -> None:
    products = [ENGINES[name] for name in engines_asked(config)]
    if len(products) != len(set(products)):
        raise pytest.UsageError("docker and docker-rootless are two daemons: give each a run of its own")


def engines_asked(config: pytest.Config) -> tuple[str, ...]:
    """The engines of ``--engine``, in a fixed order."""
    asked = config.getoption("--engine") or []
    return tuple(name for name in ENGINES if name in asked)


def products_asked(config: pytest.Config) -> tuple[str, ...]:
    """The same by their product, as ``builder --engine`` takes them."""
    return tuple(ENGINES[name] for name in engines_asked(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    engines = engines_asked(config)
    left_out = ["real"] if not engines else []
    left_out += ["rootless"] if engines == ("docker",) else []
    left_out += ["two_engines"] if len(engines) < 2 else []
    left_out += ["long"] if not config.getoption("--long") else []
    out = [item for item in items if any(item.get_closest_marker(name) for name in left_out)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine_name" in metafunc.fixturenames:
        asked = engines_asked(metafunc.config)
        products = [ENGINES[name] for name in asked]
        metafunc.parametrize("engine_name", products, ids=asked, scope="session")


@pytest.fixture(scope="session", autouse=True)
def asked(pytestconfig: pytest.Config, record_testsuite_property: object) -> None:
    """For whoever joins the results of several runs."""
    assert callable(record_testsuite_property)
    for name in (*engines_asked(pytestconfig), *(["long"] if pytestconfig.getoption("--long") else [])):
        record_testsuite_property(ASKED, name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--part"):
        long = ("long",) if config.getoption("--long") else ()
        report_untested(terminalreporter, {*engines_asked(config), *long}, ENGINES)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A skipped real test is a failure: what did not run must never look as if it had."""
    if report.skipped and "real" in report.keywords and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"a real test was skipped, which counts as failed: {report.longrepr}"
