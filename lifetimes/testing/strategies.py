"""Hypothesis strategies for what tables and policies are fed with."""

from __future__ import annotations

from hypothesis import strategies as st

from lifetimes.tables.protocol import KEY_MAX

__all__ = ["addresses", "bad_keys", "keys", "table_values"]

EDGES = (0, 1, 2**8 - 1, 2**8, 2**16, 2**32 - 1, 2**32, 2**63 - 1, 2**63, KEY_MAX - 1, KEY_MAX)
"""Keys next to a change of width or sign, and both ends."""


def keys(small: int = 24) -> st.SearchStrategy[int]:
    """Table keys: small ones that meet each other often, edges, clusters that share high bytes, and any.

    >>> from hypothesis import find
    >>> find(keys(), lambda key: key > 2**63) > 2**63
    True
    """
    clustered = st.builds(lambda high, low: (high << 8) | low, st.integers(0, 47), st.integers(0, 14))
    return st.one_of(
        st.integers(0, small),
        st.sampled_from(EDGES),
        clustered,
        st.builds(lambda far, near: far ^ near, st.sampled_from(EDGES), st.integers(0, small)),
        st.integers(0, KEY_MAX),
    )


def addresses(alignment: int = 256) -> st.SearchStrategy[int]:
    """Addresses as a driver gives them: aligned, never 0."""
    return st.integers(1, KEY_MAX // alignment).map(lambda n: n * alignment)


def bad_keys() -> st.SearchStrategy[object]:
    """What no table takes as a key: out of range, or no integer."""
    return st.one_of(
        st.integers(max_value=-1),
        st.integers(min_value=KEY_MAX + 1),
        st.booleans(),
        st.floats(),
        st.none(),
        st.text(max_size=3),
    )


def table_values() -> st.SearchStrategy[object]:
    """Values, those included that are false; never None, which no table holds."""
    return st.one_of(st.integers(0, 3), st.booleans(), st.text(max_size=2), st.builds(object))
