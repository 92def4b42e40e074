"""What holds for every test: a mark from its folder, and nothing of lifetimes left alive behind it.

The check reads `sys.modules` and never imports lifetimes itself, so a test that does not use the library does not pay
for it, and a package that cannot be imported fails the tests that import it and not all of them.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

HERE = Path(__file__).parent
FOLDER_MARKS = ("sim", "host", "opencl", "cuda")
WORKERS = "lifetimes-host-"
JOIN_SECONDS = 10.0
"""How long a worker thread that was told to stop may still take."""

FAILED: pytest.StashKey[bool] = pytest.StashKey()

# Machines share their cores: a deadline would measure the neighbours.
hypothesis.settings.register_profile("lifetimes", deadline=None, print_blob=True)
hypothesis.settings.load_profile("lifetimes")


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C be heard: a run that a script started in the background inherits deaf ears, and some tests press it."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with what its folder says it needs."""
    for item in items:
        if item.path.is_relative_to(HERE):
            folder = item.path.relative_to(HERE).parts[0]
            if folder in FOLDER_MARKS:
                item.add_marker(folder)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Note a test that raised: its traceback holds its locals, so what lives then says nothing about a leak."""
    report = yield
    if call.excinfo is not None:
        item.stash[FAILED] = True
    return report


def live_rows() -> dict[int, Any]:
    """The live lifetimes by key; empty while nobody has imported the library."""
    live = getattr(sys.modules.get("lifetimes"), "live", None)
    return {} if live is None else {row.key: row for row in live()}


def workers() -> set[threading.Thread]:
    """The worker threads of host devices."""
    return {thread for thread in threading.enumerate() if thread.name.startswith(WORKERS)}


def left_behind(before: dict[int, Any]) -> list[Any]:
    """What lives now and did not live before.  Only when there is something: collect, drain, and look again."""
    left = [row for key, row in live_rows().items() if key not in before]
    if left:
        left.clear()  # a row may name what it describes; none may be held while the collector looks
        gc.collect()
        drain = getattr(sys.modules.get("lifetimes"), "drain", None)
        if drain is not None:
            drain()
        left = [row for key, row in live_rows().items() if key not in before]
    return left


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test leaves as many live lifetimes and worker threads as it found."""
    rows, threads = live_rows(), workers()
    yield
    if request.node.stash.get(FAILED, False):
        return
    left = left_behind(rows)
    if left:
        listed = "\n".join(f"  {row}" for row in left[:20])
        pytest.fail(f"the test left {len(left)} live lifetimes behind:\n{listed}", pytrace=False)
    still = workers() - threads
    for thread in still:
        thread.join(JOIN_SECONDS)
    running = sorted(thread.name for thread in still if thread.is_alive())
    if running:
        pytest.fail(f"the test left worker threads behind: {', '.join(running)}", pytrace=False)
