"""Stands in for CuPy where there is no GPU: memory that tells the hooks of its thread, as CuPy's pool does, and no more."""

from __future__ import annotations

import itertools

from cupy import cuda

__all__ = ["cuda", "zeros"]

_addresses = itertools.count(0x1000, 0x1000)


class ndarray:  # noqa: N801  (CuPy's name)
    """Memory that is taken from the pool, and given back when it dies."""

    def __init__(self, size: int, device: int) -> None:
        self._about = {
            "device_id": device, "mem_size": (size + 511) // 512 * 512, "mem_ptr": next(_addresses), "pmem_id": id(self),
        }  # fmt: skip
        for hook in list(cuda.hooks().values()):
            hook.malloc_postprocess(size=size, **self._about)

    def __del__(self) -> None:
        for hook in list(cuda.hooks().values()):
            hook.free_postprocess(**self._about)


def zeros(size: int, device: int = 0) -> ndarray:
    """An array of so many bytes."""
    return ndarray(size, device)
