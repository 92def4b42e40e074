"""The same array with other strides."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["laid_out"]


def laid_out(array: Any, seed: int) -> Any:
    """A view with the content of ``array`` that lies in memory in some other way; of 0 the array itself.

    Dimensions are exchanged, backwards, and apart from each other; now and then it is one row for all, which changes the
    content.

    >>> x = np.arange(6).reshape(2, 3)
    >>> {laid_out(x, seed).shape for seed in range(20)}, len({laid_out(x, seed).strides for seed in range(20)}) > 5
    ({(2, 3)}, True)
    """
    if not seed or not array.ndim:
        return array
    random = np.random.default_rng(seed)
    order = random.permutation(array.ndim)
    steps = [int(random.choice([1, 1, -1, 2, -3])) for _ in order]
    whole = np.zeros([array.shape[axis] * abs(step) for axis, step in zip(order, steps, strict=True)], array.dtype)
    view = whole[tuple([slice(None, None, step) for step in steps])].transpose(np.argsort(order))
    view[...] = array
    return np.broadcast_to(view[:1], array.shape) if random.random() < 0.15 else view
