"""The pytest plugin of lifetimes, as far as every run of pytest loads it: options, a marker, a fixture.

``pytest --leaks=error`` fails each test that leaves lifetimes alive, ``--leaks=warn`` warns; the fixture ``no_leaks`` checks
one test whatever the option says, and ``@pytest.mark.allow_leaks(kind=, label=)`` lets some pass.  Off by default; until
something is to be checked, lifetimes itself is not imported.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

__all__ = ["no_leaks", "pytest_addoption", "pytest_configure"]

NAME: Final = "lifetimes-leaks"
MARKER: Final = "allow_leaks(kind=None, label=None): what the test may leave alive; patterns with * and ?, or anything"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options; those of the command line go before those of the ini file."""
    group = parser.getgroup("lifetimes", "lifetimes left alive by tests")
    group.addoption(
        "--leaks",
        choices=("off", "warn", "error"),
        default=None,
        help="what to do about a test that leaves lifetimes alive (default: off, or the ini option `leaks`)",
    )
    group.addoption(
        "--leaks-clear-tracebacks",
        action="store_true",
        help="after a failed test, free the variables that its traceback holds (not together with --pdb)",
    )
    parser.addini("leaks", "as --leaks", default="off")
    parser.addini(
        "leaks_stacks", "what is recorded of where things are made while --leaks is on: line or full", default="line"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; begin, if asked to."""
    config.addinivalue_line("markers", MARKER)
    mode = config.getoption("leaks") or str(config.getini("leaks"))
    if mode not in ("off", "warn", "error"):
        raise pytest.UsageError(f"the ini option leaks is off, warn or error, not {mode!r}")
    stacks = str(config.getini("leaks_stacks"))
    if stacks not in ("line", "full"):
        raise pytest.UsageError(f"the ini option leaks_stacks is line or full, not {stacks!r}")
    if mode == "warn":  # of the kind of `ResourceWarning`, which Python does not show by itself
        config.addinivalue_line("filterwarnings", "always::lifetimes.errors.LeakWarning")
    if mode != "off":
        _checker(config, mode)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave the library as it was found."""
    checker = config.pluginmanager.unregister(name=NAME) if config.pluginmanager.has_plugin(NAME) else None
    if checker is not None:
        checker.end()


@pytest.fixture
def no_leaks(request: pytest.FixtureRequest) -> None:
    """Fail this test if it leaves lifetimes alive that were not there when the fixture was set up."""
    _checker(request.config, "off").watch(request.node)


def _checker(config: pytest.Config, mode: str) -> Any:
    found = config.pluginmanager.get_plugin(NAME)
    if found is None:
        from lifetimes.leaks.pytest_plugin import Checker

        found = Checker(mode, str(config.getini("leaks_stacks")), bool(config.getoption("leaks_clear_tracebacks")))
        config.pluginmanager.register(found, NAME)
    return found
