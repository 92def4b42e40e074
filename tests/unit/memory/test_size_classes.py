"""Sizes are checked before they are rounded, and rounding never passes a limit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifetimes.errors import OutOfMemory
from lifetimes.size_classes import MINIMUM, check_nbytes, round_up

HUGE = 1 << 70


@given(st.integers(1, 2**63))
def test_a_class_holds_the_request_and_wastes_less_than_an_eighth(nbytes: int) -> None:
    capacity = round_up(nbytes, HUGE)
    assert capacity >= nbytes
    assert capacity >= MINIMUM
    assert capacity - nbytes < max(nbytes / 8, MINIMUM)


@given(st.integers(1, 2**40))
def test_a_class_is_its_own_class_and_eight_lie_between_two_powers(nbytes: int) -> None:
    capacity = round_up(nbytes, HUGE)
    assert round_up(capacity, HUGE) == capacity
    low = 1 << (nbytes.bit_length() + 10)
    classes = {round_up(each, HUGE) for each in range(low + 1, 2 * low + 1, max(low // 64, 1))}
    assert len(classes) <= 8


@given(st.integers(1, 2000), st.integers(0, 2000))
def test_a_rounded_size_never_exceeds_the_limit(nbytes: int, more: int) -> None:
    """BUG-101 (rapidsai/rmm#527): a request of exactly the maximum, whatever the alignment makes of either."""
    limit = nbytes + more
    assert nbytes <= round_up(nbytes, limit) <= limit


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 2**64 - 511])
def test_sizes_near_the_word_limit_are_refused_before_any_rounding(size: int) -> None:
    """BUG-005 (sonots/cumo#170)."""
    with pytest.raises(OutOfMemory, match=str(size)):
        check_nbytes(size, 2**40)


@pytest.mark.parametrize("size", [True, False, 1.0, "3", None, np.nan, [3]])
def test_what_is_no_integer_is_refused(size: object) -> None:
    with pytest.raises(TypeError, match="number of bytes"):
        check_nbytes(size, 2**40, "the block")


def test_numpy_integers_are_integers_and_negative_sizes_are_not_sizes() -> None:
    size = check_nbytes(np.int32(7), 100)
    assert type(size) is int
    assert size == 7
    assert check_nbytes(100, 100) == 100
    with pytest.raises(ValueError, match="-1"):
        check_nbytes(-1, 100)
