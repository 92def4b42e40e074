"""Code on the simulated device: Python kernels that run when their turn comes."""

from __future__ import annotations

import numpy as np
import pytest

from lifetimes.errors import BackendError, CompileError
from lifetimes.testing.sim import SimDriver

SOURCE = """
offset = 2

def fill(x, value):
    x[:] = value + offset

def count(x, size):
    x[:4].view(np.int32)[0] = size[0] * size[1]

def fail(x):
    raise ValueError("no such kernel argument")
"""


@pytest.fixture
def driver() -> SimDriver:
    return SimDriver(4096, manual=True)


def test_an_address_becomes_the_bytes_to_the_end_of_its_block(driver: SimDriver) -> None:
    module, stream = driver.load(driver.compile(SOURCE)), driver.create_stream()
    address = driver.allocate(10)
    driver.view(address, 10)[:] = 0
    driver.launch(driver.function(module, "fill"), (1,), (address + 6, 5), stream)
    assert driver.view(address, 10).tolist() == [0] * 10, "not before its time"
    driver.step()
    assert driver.view(address, 10).tolist() == [0] * 6 + [7] * 4


def test_a_kernel_that_asks_for_the_size_gets_it(driver: SimDriver) -> None:
    module, stream = driver.load(driver.compile(SOURCE)), driver.create_stream()
    address = driver.allocate(4)
    driver.launch(driver.function(module, "count"), [3, 5], [address], stream)
    driver.step()
    assert driver.view(address, 4).view(np.int32)[0] == 15


@pytest.mark.parametrize("value", [7, 7.5, True, -1, 2**70])
def test_other_arguments_stay_as_they_are(driver: SimDriver, value: object) -> None:
    heard = list[object]()
    stream = driver.create_stream()
    module = driver.load(driver.compile("def keep(heard, value): heard.append(value)"))
    driver.launch(driver.function(module, "keep"), (1,), (heard, value), stream)
    driver.step()
    assert heard == [value]
    assert type(heard[0]) is type(value)


def test_an_address_that_was_freed_is_no_scalar(driver: SimDriver) -> None:
    module, stream = driver.load(driver.compile(SOURCE)), driver.create_stream()
    address = driver.allocate(16)
    driver.free(address)
    with pytest.raises(BackendError, match="no live block"):
        driver.launch(driver.function(module, "fill"), (1,), (address, 1), stream)
    assert len(driver.violations) == 1
    driver.check_invariants()


def test_a_kernel_that_raises_fails_the_next_event(driver: SimDriver) -> None:
    module, stream, event = driver.load(driver.compile(SOURCE)), driver.create_stream(), driver.create_event()
    driver.launch(driver.function(module, "fail"), (1,), (driver.allocate(4),), stream)
    driver.record(event, stream)
    driver.run_until_idle()
    with pytest.raises(BackendError, match="no such kernel argument"):
        driver.wait(event)


def test_a_module_in_flight_cannot_be_unloaded(driver: SimDriver) -> None:
    """Nor can the memory that its kernel uses be freed (AccelerateHS/accelerate-llvm unloaded early three times)."""
    module, stream, address = driver.load(driver.compile(SOURCE)), driver.create_stream(), driver.allocate(4)
    driver.launch(driver.function(module, "fill"), (1,), (address, 1), stream)
    with pytest.raises(BackendError, match="1 kernels in flight"):
        driver.unload(module)
    with pytest.raises(BackendError, match="1 commands in flight"):
        driver.free(address)
    assert len(driver.violations) == 2
    driver.step()
    driver.unload(module)
    driver.free(address)
    driver.check_invariants()


def test_kernels_go_with_their_module(driver: SimDriver) -> None:
    module, stream = driver.load(driver.compile(SOURCE)), driver.create_stream()
    kernel = driver.function(module, "fill")
    driver.unload(module)
    with pytest.raises(BackendError, match="no live kernel"):
        driver.launch(kernel, (1,), (1, 1), stream)
    with pytest.raises(BackendError, match="no live module"):
        driver.function(module, "fill")
    with pytest.raises(BackendError, match="no live module"):
        driver.unload(module)


def test_an_unknown_kernel_is_answered_by_the_known(driver: SimDriver) -> None:
    module = driver.load(driver.compile(SOURCE))
    with pytest.raises(BackendError, match=r"no kernel 'fil'; it has count, fail, fill$"):
        driver.function(module, "fil")
    empty = driver.load(driver.compile("x = 1"))
    with pytest.raises(BackendError, match="none at all"):
        driver.function(empty, "x")
    assert driver.violations == [], "asking for a name is allowed"


def test_a_compile_error_shows_line_log_and_source(driver: SimDriver) -> None:
    with pytest.raises(CompileError) as caught:
        driver.compile("def kernel(x):\n    return x +* 1\n")
    assert "line 2" in str(caught.value)
    assert "   2      return x +* 1" in str(caught.value)
    assert "SyntaxError" in "".join(caught.value.__notes__)
    with pytest.raises(CompileError):
        driver.compile("a null \0 byte")


@pytest.mark.parametrize(("binary", "words"), [(b"ELF", "no binary"), (None, "raised ZeroDivisionError")])
def test_what_cannot_be_loaded_is_refused(driver: SimDriver, binary: bytes | None, words: str) -> None:
    with pytest.raises(BackendError, match=words):
        driver.load(binary or driver.compile("1 / 0"))
    assert driver.live_modules == []
