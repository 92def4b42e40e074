"""The namespace inside a traced function: the names and meanings of the array API standard, over traced arrays.

Where the standard leaves something open, NumPy's answer is taken.  NumPy's own functions work on traced arrays as well,
by their names: ``np.sin(x)`` is `sin` here.

Not in the standard: ``cbrt``, ``cumprod``, ``cumsum``, ``dot``, ``erf``, ``erfc``, ``exp2``, ``outer``, ``ravel``,
``scatter_add``, ``swapaxes``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from lifetimes.compiler.apply import operate
from lifetimes.compiler.functions import creation, elementwise, indexing, linear, numpys, reductions, shapes
from lifetimes.compiler.functions.creation import *  # noqa: F403  (each has an __all__: this is one namespace in six files)
from lifetimes.compiler.functions.elementwise import *  # noqa: F403
from lifetimes.compiler.functions.indexing import *  # noqa: F403
from lifetimes.compiler.functions.linear import *  # noqa: F403
from lifetimes.compiler.functions.reductions import *  # noqa: F403
from lifetimes.compiler.functions.shapes import *  # noqa: F403

__all__ = [
    "bool", "e", "finfo", "float32", "float64", "iinfo", "inf", "int8", "int16", "int32", "int64", "nan",
    "newaxis", "numpy_call", "operate", "pi", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip
__all__ += creation.__all__
__all__ += elementwise.__all__
__all__ += indexing.__all__
__all__ += linear.__all__
__all__ += reductions.__all__
__all__ += shapes.__all__

e: Final = np.e
pi: Final = np.pi
inf: Final = np.inf
nan: Final = np.nan
newaxis: Final = None
bool: Final = np.bool_
int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
float32, float64 = np.float32, np.float64
finfo: Final = np.finfo
iinfo: Final = np.iinfo


def numpy_call(function: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """What one of NumPy's functions does with traced arrays.  Errors: `TraceError` for what is not there, by name."""
    return numpys.call(sys.modules[__name__], function, args, options)
