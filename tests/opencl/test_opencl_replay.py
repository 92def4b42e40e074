"""A trace replayed on an OpenCL device: memory is really allocated, content really moved."""

from __future__ import annotations

from random import Random

import pytest

from lifetimes.replay.play import play
from lifetimes.replay.trace import Trace
from tests.opencl import here


@pytest.mark.parametrize("op", ["r", "rw", "w"])
def test_every_array_holds_what_it_should(op: str) -> None:
    here.require()
    keys = [int(Random(n).triangular(0, 40, 0)) for n in range(300)]
    played = play(Trace("made", keys=keys, sizes=[4096] * 300), backend="opencl", limit=16 * 4096, default_op=op)
    assert played.evictions > 20
    assert bool(played.copybacks) is (op != "r")
    assert played.checked >= 16
    assert played.wrong == 0
