"""The oracle of these tests is NumPy 2: before it, NumPy looked at the values of scalars and lacked the standard's names."""

from __future__ import annotations

import numpy as np

if np.lib.NumpyVersion(np.__version__) < "2.1.0":
    collect_ignore = [
        "test_agreement.py", "test_functions.py", "test_indexing.py", "test_lowering.py", "test_numpys.py", "test_passes.py",
        "test_promotion.py", "test_random_programs.py", "test_reductions.py", "test_simplify.py", "test_text.py",
        "test_trace.py", "test_weak.py",
    ]  # fmt: skip
