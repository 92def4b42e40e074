"""The quick way through a launch: for kernels whose parameters are all pointers and plain numbers.

What can be known when a kernel is made is put together then, as lists with gaps for the values.  Whatever does not fit (an
address inside a block, a number of the wrong kind) takes the long way, through `Arguments`, which also says what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from lifetimes_opencl.parameters import POINTER, SCALAR, Parameter

__all__ = ["Plan"]

_CODES: Final = {"int": b"i", "uint": b"I", "float": b"f", "double": b"d"}
"""The types that PyOpenCL packs itself and checks when it does; it does not check the shorter ones."""
if struct.calcsize("l") == 8:
    _CODES.update({"long": b"l", "ulong": b"L"})


class Plan:
    """How one kernel takes its arguments.

    Complexity: `fill` about 0.1 us and 50 ns an argument.
    """

    __slots__ = ("_numbers", "_numbers_at", "_pointers", "_pointers_at", "count")

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.count = len(parameters)
        self._pointers: list[Any] = []
        self._pointers_at: list[tuple[int, int]] = []  # where in the list, which argument
        self._numbers: list[Any] = []
        self._numbers_at: list[tuple[int, int]] = []
        for index, parameter in enumerate(parameters):
            if parameter.kind == POINTER:
                self._pointers += (index, None)
                self._pointers_at.append((len(self._pointers) - 1, index))
            else:
                self._numbers += (index, _CODES[parameter.type], None)
                self._numbers_at.append((len(self._numbers) - 1, index))

    @classmethod
    def of(cls, parameters: Sequence[Parameter] | None) -> Plan | None:
        """A plan, or None for a kernel with parameters of other kinds."""
        if parameters is None or not all(
            each.kind == POINTER or (each.kind == SCALAR and each.type in _CODES) for each in parameters
        ):
            return None
        return cls(parameters)

    def fill(self, kernel: Any, pointers: dict[int, Any], args: Sequence[Any]) -> tuple[Any, ...] | None:
        """Set the arguments of a runtime's kernel object; None if they have to take the long way.

        The result keeps the memory that the arguments point to.
        """
        try:
            values = self._pointers[:]
            for place, index in self._pointers_at:
                values[place] = pointers[args[index]]
            numbers = self._numbers[:]
            for place, index in self._numbers_at:
                numbers[place] = args[index]
            used = tuple(values)
            if used:
                kernel._set_arg_multi(used)
            if numbers:
                kernel._set_arg_buf_pack_multi(tuple(numbers))
        except (KeyError, TypeError, RuntimeError):  # PyOpenCL's own errors are none of these
            return None
        return used
