"""The conformance suite on the simulated back end in each of its forms, and on drivers with a planted fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from lifetimes.backend import Backend, Driver, MemoryInfo
from lifetimes.errors import BackendError, OutOfMemory
from lifetimes.testing.conformance.backend import BackendSuite
from lifetimes.testing.conformance.backend.machine import DriverMachine
from lifetimes.testing.sim import SimBackend, SimDriver

FORMS: dict[str, dict[str, Any]] = {
    "default": {},
    "contexts": {"contexts": True},
    "fresh": {"reuse_addresses": False, "reuse_handles": False},
    "by size": {"latency": lambda kind, nbytes: 1e-3 * nbytes + 1},
}


class TestSim(BackendSuite):
    virtual_time = True

    @pytest.fixture(params=list(FORMS.values()), ids=list(FORMS))
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return SimBackend(total=8 << 20, **request.param)


class SimMachine(DriverMachine):
    def open(self) -> Driver:
        return SimDriver(latency=lambda kind, nbytes: 1 + nbytes % 7)


SimMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestSimMachine = SimMachine.TestCase


# Drivers with a fault.  Each must fail the test named beside it: a suite that finds nothing proves nothing.
class Unaligned(SimDriver):
    def allocate(self, nbytes: int) -> int:
        return super().allocate(nbytes + 8) + 8


class ShortCopy(SimDriver):
    def copy_in(self, address: int, source: Any, stream: int) -> None:
        super().copy_in(address, source.ravel().view(np.uint8)[:-1].copy(), stream)


class CopyFromTheStart(SimDriver):
    def copy_out(self, destination: Any, address: int, stream: int) -> None:
        super().copy_out(destination, next(start for start in reversed(self.live_blocks) if start <= address), stream)


class PlainMemoryError(SimDriver):
    def allocate(self, nbytes: int) -> int:
        try:
            return super().allocate(nbytes)
        except OutOfMemory as error:
            raise BackendError(str(error)) from None


class CountsRefused(SimDriver):
    refused = 0

    def allocate(self, nbytes: int) -> int:
        try:
            return super().allocate(nbytes)
        except OutOfMemory:
            self.refused += 1
            raise

    def memory_info(self) -> MemoryInfo:
        info = super().memory_info()
        return MemoryInfo(info.free - self.refused, info.total)


class KeepsFreed(SimDriver):
    def free(self, address: int) -> None:
        pass


class EagerEvents(SimDriver):
    def completed(self, event: int) -> bool:
        super().completed(event)
        return True


class BlockingQuery(SimDriver):
    def completed(self, event: int) -> bool:
        self.wait(event)
        return True


class NoStreamWait(SimDriver):
    def stream_wait(self, stream: int, event: int) -> None:
        pass


class StickyEvents(SimDriver):
    def record(self, event: int, stream: int) -> None:
        if not self.counts[f"record {event}"]:
            super().record(event, stream)
        self.counts[f"record {event}"] += 1


class LazySynchronize(SimDriver):
    def synchronize(self, stream: int) -> None:
        pass


class HoldsNothing(SimDriver):
    def copy_in(self, address: int, source: Any, stream: int) -> None:
        super().copy_in(address, source.copy(), stream)


class HoldsForEver(SimDriver):
    def copy_in(self, address: int, source: Any, stream: int) -> None:
        self.__dict__.setdefault("kept", []).append(source)
        super().copy_in(address, source, stream)


class ForgetsFailures(SimDriver):
    def call(self, function: Callable[..., object], args: Any, stream: int) -> None:
        def quiet(*args: object) -> None:
            try:
                function(*args)
            except ValueError:
                pass

        super().call(quiet, args, stream)


class CallsAtOnce(SimDriver):
    def call(self, function: Callable[..., object], args: Any, stream: int) -> None:
        super().call(function(*args) or int, (), stream)  # type: ignore[arg-type]


class OneClose(SimDriver):
    def close(self) -> None:
        if self._closed:
            raise BackendError("closed twice")
        super().close()


FAULTS: list[tuple[type[SimDriver], str, tuple[object, ...]]] = [
    (Unaligned, "test_an_address_is_a_plain_int_aligned_to_256", (100,)),
    (ShortCopy, "test_copy_in_writes_what_copy_out_reads", (100,)),
    (ShortCopy, "test_copy_in_puts_the_bytes_there", (100,)),
    (CopyFromTheStart, "test_an_address_inside_a_block_is_an_address", (33,)),
    (PlainMemoryError, "test_more_than_the_largest_allocation_is_out_of_memory", ()),
    (PlainMemoryError, "test_sizes_near_and_beyond_a_machine_word_are_out_of_memory", (2**63,)),
    (CountsRefused, "test_more_than_the_largest_allocation_is_out_of_memory", ()),
    (KeepsFreed, "test_memory_runs_out_and_comes_back", ()),
    (KeepsFreed, "test_a_freed_block_can_be_had_again", ()),
    (KeepsFreed, "test_memory_info_follows_what_is_allocated", ()),
    (EagerEvents, "test_an_event_completes_after_the_work_before_it", ()),
    (BlockingQuery, "test_an_event_completes_after_the_work_before_it", ()),
    (NoStreamWait, "test_a_stream_waits_for_an_event_of_another", (100,)),
    (NoStreamWait, "test_a_stream_waits_for_the_recording_of_that_moment", ()),
    (StickyEvents, "test_recording_again_resets_an_event", ()),
    (LazySynchronize, "test_synchronize_waits_for_everything", ()),
    (HoldsNothing, "test_a_source_is_held_until_its_copy_is_done_and_no_longer", (100,)),
    (HoldsForEver, "test_a_source_is_held_until_its_copy_is_done_and_no_longer", (100,)),
    (ForgetsFailures, "test_a_failure_fails_the_next_event_and_no_other", ()),
    (CallsAtOnce, "test_calls_keep_the_order_of_their_stream", ()),
]


@pytest.mark.parametrize(
    ("faulty", "test", "args"), FAULTS, ids=[f"{kind.__name__}-{test}" for kind, test, _ in FAULTS]
)
def test_the_suite_finds_the_fault(faulty: type[SimDriver], test: str, args: tuple[object, ...]) -> None:
    run(SimDriver(8 << 20), test, args)  # right without the fault
    with pytest.raises((AssertionError, BackendError, OutOfMemory, pytest.fail.Exception)):
        run(faulty(8 << 20), test, args)


def run(driver: SimDriver, test: str, args: tuple[object, ...]) -> None:
    """One test of the suite on one driver, with a stream where the test wants one."""
    suite = BackendSuite()
    suite.virtual_time = True
    body = getattr(suite, test)
    names = body.__code__.co_varnames[: body.__code__.co_argcount]
    stream = [driver.create_stream()] if "stream" in names else []
    body(driver, *stream, *args)


@pytest.mark.parametrize("faulty", [NoStreamWait, ShortCopy, LazySynchronize, CountsRefused])
def test_the_machine_finds_the_fault(faulty: type[SimDriver]) -> None:
    class Machine(DriverMachine):
        def open(self) -> Driver:
            return faulty(latency=lambda kind, nbytes: 1 + nbytes % 7)

    quiet = settings(max_examples=300, stateful_step_count=30, database=None, phases=[Phase.generate], print_blob=False)
    with pytest.raises((AssertionError, BackendError)):
        run_state_machine_as_test(Machine, settings=quiet)


def test_a_driver_that_cannot_be_closed_twice_is_found() -> None:
    class Backend(SimBackend):
        def open(self, index: int = 0, **options: Any) -> SimDriver:
            return OneClose()

    with pytest.raises(BackendError, match="closed twice"):
        BackendSuite().test_closing_twice_is_fine(Backend())


class TestInvariantsAreAskedFor(BackendSuite):
    """Each test of the suite ends with the driver's own invariants, and fails where they do."""

    virtual_time = True

    @pytest.fixture
    def backend(self) -> Backend:
        return SimBackend()

    @pytest.fixture
    def driver(self) -> Iterator[Driver]:
        class Asked(SimDriver):
            checks = 0

            def check_invariants(self) -> None:
                super().check_invariants()
                self.checks += 1

        driver = Asked()
        yield from self.under_test(driver)
        assert driver.checks == 1


def test_a_broken_protocol_fails_the_suite() -> None:
    driver = SimDriver()
    driver.violations.append("something was freed twice")
    with pytest.raises(AssertionError, match="freed twice"):
        BackendSuite().verify(driver)
