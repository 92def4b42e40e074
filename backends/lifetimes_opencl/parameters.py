"""What a kernel's parameters are, and how a Python value becomes one.

OpenCL can tell the parameters of a kernel that was built from source, and not those of a loaded binary.  They are
therefore asked for when a program is compiled, and travel with its binary.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lifetimes.errors import BackendError
from lifetimes_opencl.runtime import cl

__all__ = ["LOCAL", "POINTER", "SCALAR", "Parameter", "pack_unknown", "parameters_of"]

POINTER: Final = "pointer"
LOCAL: Final = "local"
SCALAR: Final = "scalar"
_GLOBAL, _LOCAL, _CONSTANT = 0x119B, 0x119C, 0x119D
_CONST: Final = 1
_FORMATS: Final = {
    "char": "b", "uchar": "B", "short": "h", "ushort": "H", "int": "i", "uint": "I", "long": "q", "ulong": "Q",
    "half": "e", "float": "f", "double": "d", "unsigned char": "B", "unsigned short": "H", "unsigned int": "I",
    "unsigned long": "Q",
}  # fmt: skip
_VECTOR: Final = re.compile(r"([a-z]+)(2|3|4|8|16)")
_PACK: Final[dict[str, Callable[[Any], bytes]]] = {name: struct.Struct(f"={f}").pack for name, f in _FORMATS.items()}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: ``kind`` is pointer, local or scalar; ``type`` as the program has it."""

    name: str
    kind: str
    type: str
    const: bool

    def pack(self, value: Any) -> Any:
        """The bytes of a scalar of this type.

        Errors: `BackendError` for a value that does not fit.
        """
        pack = _PACK.get(self.type)
        if pack is None:
            return self._pack_other(value)
        try:
            return pack(value)
        except (struct.error, TypeError, OverflowError, ValueError) as error:
            raise BackendError(f"{value!r} is no {self.type} for the parameter {self.name!r}: {error}") from None

    def _pack_other(self, value: Any) -> Any:
        """A vector, a struct, a sampler.  PoCL 3.0 takes a vector of any size and reads what is behind it."""
        value = pack_unknown(value, self.name, self.type)
        vector = _VECTOR.fullmatch(self.type)
        if vector is not None and vector.group(1) in _FORMATS:
            count = int(vector.group(2))
            wanted = struct.calcsize(f"={_FORMATS[vector.group(1)]}") * (4 if count == 3 else count)
            try:
                given = memoryview(value).nbytes
            except TypeError as error:
                raise BackendError(f"{value!r} is no {self.type} for the parameter {self.name!r}: {error}") from None
            if given != wanted:
                raise BackendError(
                    f"the parameter {self.name!r} is a {self.type} of {wanted} bytes, and {given} were given"
                )
        return value


def pack_unknown(value: Any, name: object, type_name: str = "") -> Any:
    """A value for a parameter whose type is not one of C's: it must say itself how many bytes it has.

    NumPy scalars and arrays do, and so does whatever PyOpenCL takes for local memory, samplers and images.
    """
    if isinstance(value, (bool, int, float, complex, str)) and not isinstance(value, np.generic):
        known = (
            f" has the type {type_name!r}" if type_name else " is not known: its program was loaded from a bare binary"
        )
        raise BackendError(
            f"the parameter {name!r}{known}; give a value with a type of its own, say np.float32({value!r}), and a "
            "device address as np.uint64"
        )
    return value


def parameters_of(kernel: Any) -> list[Parameter] | None:
    """What the runtime tells about a kernel's parameters; None if it tells nothing."""
    info = cl.kernel_arg_info
    found = []
    try:
        for index in range(kernel.num_args):
            space = kernel.get_arg_info(index, info.ADDRESS_QUALIFIER)
            kind = POINTER if space in (_GLOBAL, _CONSTANT) else LOCAL if space == _LOCAL else SCALAR
            qualifiers = kernel.get_arg_info(index, info.TYPE_QUALIFIER)
            found.append(
                Parameter(
                    kernel.get_arg_info(index, info.NAME),
                    kind,
                    kernel.get_arg_info(index, info.TYPE_NAME),
                    space == _CONSTANT or bool(qualifiers & _CONST),
                )
            )
    except cl.Error:
        return None
    return found
