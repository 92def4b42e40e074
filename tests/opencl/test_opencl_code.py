"""Programs, kernels, launches: what is told when something is wrong, and what arguments may be."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lifetimes.errors import BackendError, CompileError
from tests.opencl.here import wait_for

SCALARS = """
__kernel void numbers(char a, uchar b, short c, ushort d, int e, uint f, long g, ulong h, float i, double j,
                      __global double *out) {
    out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = f; out[6] = g; out[7] = h; out[8] = i; out[9] = j;
}
__kernel void plain(float a, int n, __global const float *x, __global float *y) {
    size_t i = get_global_id(0);
    if (i < n) y[i] = a * x[i];
}
__kernel void local_sum(__global int *x, __local int *part) {
    part[get_local_id(0)] = get_global_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    x[get_global_id(0)] = part[get_local_id(0)];
}
__kernel void vector(float4 v, __global float *out) { vstore4(v, 0, out); }
__kernel void is_null(__global int *x, __global int *out) { out[0] = x == 0; }
__kernel void coordinates(__global int *out) { out[get_global_id(1) * 4 + get_global_id(0)] = get_work_dim(); }
__kernel void nothing(void) { }
"""


class Bench:
    """A module, and a way to run one kernel and read what it wrote."""

    def __init__(self, driver: Any, source: str = SCALARS, options: str = "") -> None:
        self.driver = driver
        self.module = driver.load(driver.compile(source, options))
        self.stream = driver.create_stream()

    def array(self, content: Any) -> int:
        host = np.ascontiguousarray(content)
        address: int = self.driver.allocate(host.nbytes)
        self.driver.copy_in(address, host, self.stream)
        self.driver.synchronize(self.stream)
        return address

    def run(self, name: str, size: Any, *args: Any) -> None:
        self.driver.launch(self.driver.function(self.module, name), size, args, self.stream)
        wait_for(self.driver, self.stream)

    def read(self, address: int, count: int, dtype: Any) -> Any:
        found = np.zeros(count, dtype)
        self.driver.copy_out(found, address, self.stream)
        self.driver.synchronize(self.stream)
        return found


# What does not compile, load or exist.


def test_a_program_that_does_not_compile_shows_the_line_the_source_and_the_log(driver: Any) -> None:
    source = "__kernel void f(__global int *x) {\n    x[0] = 1;\n    x[1] = undeclared;\n}\n"
    with pytest.raises(CompileError) as caught:
        driver.compile(source)
    lines = str(caught.value).splitlines()
    assert lines[0] == "line 3: use of undeclared identifier 'undeclared'"
    assert "   2      x[0] = 1;" in lines
    assert "log of the compiler" in str(caught.value)


@pytest.mark.parametrize(
    ("log", "head"),
    [
        ("<kernel>:12:9: error: no such thing", "line 12: no such thing"),
        ("3:5:error: wrong", "line 3: wrong"),
        ('"a.cl", line 4: error: wrong', "line 4: wrong"),
        ("<program source>(7:3): error: wrong", "line 7: wrong"),
        ("ptxas error: out of registers", "ptxas error: out of registers"),
        ("", "the compiler says nothing"),
    ],
)
def test_the_logs_of_other_compilers_are_understood(shared: Any, log: str, head: str) -> None:
    from lifetimes_opencl.programs import compile_error

    assert str(compile_error("x\ny", log)).splitlines()[0] == head


def test_options_reach_the_compiler(driver: Any) -> None:
    bench = Bench(driver, "__kernel void f(__global int *x) { x[0] = VALUE; }", "-D VALUE=42")
    x = bench.array(np.zeros(1, np.int32))
    bench.run("f", (1,), x)
    assert bench.read(x, 1, np.int32)[0] == 42


def test_a_program_without_kernels_has_none(driver: Any) -> None:
    bench = Bench(driver, "int helper(int x) { return x; }")
    with pytest.raises(BackendError, match="no kernel 'helper'; it has none at all"):
        driver.function(bench.module, "helper")


def test_a_binary_of_another_device_is_built_from_its_source(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from lifetimes_opencl import programs

    binary = driver.compile(SCALARS)
    monkeypatch.setattr(programs, "fingerprint", lambda device: ["another"])
    monkeypatch.setattr(programs, "load_bare", None)
    bench = Bench.__new__(Bench)
    bench.driver, bench.module, bench.stream = driver, driver.load(binary), driver.create_stream()
    out = bench.array(np.zeros(4, np.float32))
    bench.run("plain", (4,), 2.0, 4, bench.array(np.arange(4, dtype=np.float32)), out)
    assert bench.read(out, 4, np.float32).tolist() == [0, 2, 4, 6]


def test_a_binary_that_the_runtime_refuses_is_built_from_its_source(driver: Any) -> None:
    binary = driver.compile("__kernel void f(__global int *x) { x[0] = 5; }")
    head = binary[: binary.index(b"poclbin")] if b"poclbin" in binary else binary
    module = driver.load(head + b"poclbin of a version that nobody knows")
    assert list(module.kernels) == ["f"]


def test_a_damaged_binary_is_refused(driver: Any) -> None:
    binary = driver.compile("__kernel void f(__global int *x) { x[0] = 5; }")
    for damaged in (binary[:40], binary[:27] + b"{}" + binary[29:], b"nothing that anybody knows", b""):
        with pytest.raises(BackendError):
            driver.load(damaged)


def test_a_kernel_of_an_unloaded_module_is_refused(driver: Any) -> None:
    bench = Bench(driver)
    function = driver.function(bench.module, "nothing")
    driver.unload(bench.module)
    driver.unload(bench.module)
    with pytest.raises(BackendError, match="after its module was unloaded"):
        driver.launch(function, (1,), (), bench.stream)


# Arguments.

VALUES = (-7, 200, -30_000, 60_000, -(2**31), 2**32 - 1, -(2**62), 2**63, 0.5, 0.1)
TYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")


@pytest.mark.parametrize("numpy_scalars", [False, True])
def test_numbers_get_the_type_that_the_program_declares(driver: Any, numpy_scalars: bool) -> None:
    bench = Bench(driver)
    values: list[Any] = list(VALUES)
    if numpy_scalars:
        values = [np.dtype(name).type(value) for name, value in zip(TYPES, VALUES, strict=True)]
    out = bench.array(np.zeros(10))
    bench.run("numbers", (1,), *values, out)
    assert bench.read(out, 10, np.float64).tolist() == [float(value) for value in VALUES]


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, 200), (1, -1), (2, 2**15), (4, 2**31), (4, 1.5), (5, -1), (7, -1), (8, "text"), (9, None), (9, 1j), (4, [1])],
)
def test_numbers_that_do_not_fit_are_refused_by_name(driver: Any, place: int, value: Any) -> None:
    bench, args = Bench(driver), [*VALUES, bench_address(driver)]
    args[place] = value
    with pytest.raises(BackendError, match=f"for the parameter '{'abcdefghij'[place]}'"):
        bench.run("numbers", (1,), *args)


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ((1.0, 4), "takes 4 arguments, not 2"),
        ((1.0, 4, 0, 0, 0), "takes 4 arguments, not 5"),
        (("text", 4, 0, 0), "'text' is no float for the parameter 'a'"),
        ((1.0, 2.5, 0, 0), "2.5 is no int for the parameter 'n'"),
        ((1.0, 2**40, 0, 0), "is no int for the parameter 'n'"),
        ((1.0, 4, "text", 0), "'x' of 'plain' is a pointer and takes a device address, not 'text'"),
        ((1.0, 4, 1234, 0), "0x4d2 lies in no block"),
    ],
)
def test_wrong_arguments_are_refused_by_name(driver: Any, args: tuple[Any, ...], what: str) -> None:
    with pytest.raises(BackendError, match=what):
        Bench(driver).run("plain", (4,), *args)


def bench_address(driver: Any) -> int:
    address: int = driver.allocate(80)
    return address


def test_the_address_zero_is_a_null_pointer(driver: Any) -> None:
    bench = Bench(driver)
    out = bench.array(np.array([7], np.int32))
    for pointer, null in ((0, 1), (None, 1), (out, 0)):
        bench.run("is_null", (1,), pointer, out)
        assert bench.read(out, 1, np.int32)[0] == null


def test_local_memory_is_given_by_its_size(driver: Any) -> None:
    bench = Bench(driver)
    x = bench.array(np.zeros(16, np.int32))
    bench.run("local_sum", (16,), x, 64)
    assert bench.read(x, 16, np.int32).tolist() == list(range(16))


@pytest.mark.parametrize("size", [0, -1, 1 << 40])
def test_more_local_memory_than_there_is_is_refused_by_name(driver: Any, size: int) -> None:
    """PoCL 3.0 takes it, and ends the process."""
    bench = Bench(driver)
    x = bench.array(np.zeros(16, np.int32))
    with pytest.raises(
        BackendError, match="'part' of 'local_sum' takes a size of local memory in bytes; the device has"
    ):
        bench.run("local_sum", (16,), x, size)


def test_a_vector_is_given_as_its_bytes(driver: Any) -> None:
    bench = Bench(driver)
    out = bench.array(np.zeros(4, np.float32))
    bench.run("vector", (1,), np.arange(4, dtype=np.float32), out)
    assert bench.read(out, 4, np.float32).tolist() == [0, 1, 2, 3]
    with pytest.raises(BackendError, match="'v' is a float4 of 16 bytes, and 12 were given"):
        bench.run("vector", (1,), np.arange(3, dtype=np.float32), out)
    with pytest.raises(BackendError, match="'v' has the type 'float4'"):
        bench.run("vector", (1,), 1.0, out)
    with pytest.raises(BackendError, match="is no float4 for the parameter 'v'"):
        bench.run("vector", (1,), (1.0, 2.0, 3.0, 4.0), out)


def test_foreign_memory_objects_can_be_arguments(driver: Any) -> None:
    from lifetimes_opencl.runtime import cl

    bench = Bench(driver)
    theirs = cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, 4)
    bench.run("is_null", (1,), 0, theirs)
    found = np.zeros(1, np.int32)
    cl.enqueue_copy(bench.stream.queue, found, theirs)
    assert found[0] == 1


def test_sizes_may_have_three_dimensions_and_be_empty(driver: Any) -> None:
    bench = Bench(driver)
    out = bench.array(np.zeros(8, np.int32))
    bench.run("coordinates", (4, 0), out)
    assert bench.read(out, 8, np.int32).tolist() == [0] * 8
    bench.run("coordinates", (4, 2), out)
    assert bench.read(out, 8, np.int32).tolist() == [2] * 8
    bench.run("nothing", (1,))
    with pytest.raises(BackendError, match="'nothing' over"):
        bench.run("nothing", (1, 1, 1, 1))


def test_a_bare_binary_is_loaded_and_its_arguments_must_say_their_type(driver: Any) -> None:
    from lifetimes_opencl.runtime import cl

    bench = Bench(driver)
    bare = bench.module.program.get_info(cl.program_info.BINARIES)[0]
    bench.module = driver.load(bare)
    x, y = bench.array(np.arange(8, dtype=np.float32)), bench.array(np.zeros(8, np.float32))
    bench.run("plain", (4,), np.float32(3), np.int32(4), x, y)
    bench.run("plain", (2,), np.float32(5), np.int32(2), x, y)
    assert bench.read(y, 4, np.float32).tolist() == [0, 5, 6, 9]
    for wrong in ((3.0, np.int32(4), x, y), (np.float32(3), 4, x, y)):
        with pytest.raises(BackendError, match="is not known: its program was loaded from a bare binary"):
            bench.run("plain", (4,), *wrong)


# Addresses inside blocks.


@pytest.mark.parametrize("offset", [4, 128, 132, 512])
@pytest.mark.parametrize("const", [True, False])
def test_an_address_inside_a_block_is_an_argument(driver: Any, offset: int, const: bool) -> None:
    """Buffers take multiples of 128 bytes by a part of them, and anything else by a copy."""
    bench, before = Bench(driver), np.arange(200, dtype=np.float32)
    x, y = bench.array(before), bench.array(before)
    if const:
        bench.run("plain", (8,), 2.0, 8, x + offset, y)
        expected = np.concatenate([2 * before[offset // 4 : offset // 4 + 8], before[8:]])
    else:
        bench.run("plain", (8,), 2.0, 8, x, y + offset)
        expected = before.copy()
        expected[offset // 4 : offset // 4 + 8] = 2 * before[:8]
    assert bench.read(y, 200, np.float32).tolist() == expected.tolist()
    assert bench.read(x, 200, np.float32).tolist() == before.tolist()
    assert not bench.stream.pending


def test_two_addresses_inside_one_block_work_where_the_device_can(driver: Any) -> None:
    bench, before = Bench(driver), np.arange(200, dtype=np.float32)
    x = bench.array(before)
    bench.run("plain", (8,), 2.0, 8, x + 4, x + 128)
    expected = before.copy()
    expected[32:40] = 2 * before[1:9]
    assert bench.read(x, 200, np.float32).tolist() == expected.tolist()
    if driver.memory == "buffers":
        for kind in (int, np.uint64):
            with pytest.raises(BackendError, match="must be a multiple of 128"):
                bench.run("plain", (8,), 2.0, 8, kind(x), kind(x + 100))


# Threads.


def test_arguments_of_a_launch_within_a_launch_stay_apart(shared: Any) -> None:
    """As from a signal handler, or another thread: here a sequence of arguments launches when it is read."""
    bench = Bench(shared)
    function = shared.function(bench.module, "plain")
    x = bench.array(np.ones(4, np.float32))
    outer, inner = bench.array(np.zeros(4, np.float32)), bench.array(np.zeros(4, np.float32))

    class Launching(tuple):
        def __getitem__(self, index: Any) -> Any:
            if index == 1:
                shared.launch(function, (4,), (5.0, 4, x, inner), bench.stream)
            return super().__getitem__(index)

    shared.launch(function, (4,), Launching((3.0, 4, x, outer)), bench.stream)
    assert bench.read(outer, 4, np.float32).tolist() == [3] * 4
    assert bench.read(inner, 4, np.float32).tolist() == [5] * 4


@pytest.fixture
def impatient() -> Iterator[None]:
    """Threads take turns every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("impatient")
def test_threads_launch_one_kernel_with_arguments_of_their_own(driver: Any) -> None:
    """A kernel of the runtime holds the arguments of the next launch, whoever set them."""
    bench, barrier, wrong = Bench(driver), threading.Barrier(6), []
    function = driver.function(bench.module, "plain")
    x = bench.array(np.ones(64, np.float32))

    def body(number: int) -> None:
        stream, y, found = driver.create_stream(), driver.allocate(256), np.zeros(64, np.float32)
        barrier.wait(20)
        for round_ in range(40):
            driver.launch(function, (64,), (float(100 * number + round_), 64, x, y), stream)
            driver.copy_out(found, y, stream)
            wait_for(driver, stream)
            if set(found.tolist()) != {100 * number + round_}:
                wrong.append((number, round_, found))
        driver.destroy_stream(stream)

    threads = [threading.Thread(target=body, args=(number,), daemon=True) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not wrong
    assert len(function.spare) <= 6
