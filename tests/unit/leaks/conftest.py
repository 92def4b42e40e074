from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import lifetimes
from lifetimes.origins import get_stacks, set_stacks


@pytest.fixture(autouse=True)
def at_rest() -> None:
    """What earlier tests dropped is released before, not during the test."""
    gc.collect()
    lifetimes.drain()


@pytest.fixture
def lines() -> Iterator[None]:
    """Lines are recorded during the test."""
    before = get_stacks()
    set_stacks("line")
    yield
    set_stacks(before)


@pytest.fixture
def planted() -> Iterator[None]:
    """Whatever is planted is mended after the test."""
    from tests.unit.leaks import planted as garden

    yield
    garden.clear()
    gc.collect()
    lifetimes.drain()
