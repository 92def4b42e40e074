"""`Module` and `Kernel`: loaded code.  A module stays while a kernel of it is in flight, on any stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lifetimes.cell import Pending, next_key
from lifetimes.lifetime import Lifetime
from lifetimes.resources.array import Array
from lifetimes.resources.in_use import parse_modes
from lifetimes.timeline import Timeline, Work

if TYPE_CHECKING:
    from lifetimes._typing import Mode
    from lifetimes.backend import Handle, SupportsCode
    from lifetimes.device import Device

__all__ = ["BoundKernel", "Kernel", "Module"]


class InFlight:
    """The last launch on each stream, as one task: work of a stream completes in order."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: dict[Timeline, int] = {}

    def completed(self) -> bool:
        """Whether every launch has finished."""
        return all(timeline.done(sequence) for timeline, sequence in list(self.last.items()))

    def wait(self) -> None:
        """Block until they have."""
        for timeline, sequence in list(self.last.items()):
            timeline.wait(sequence)


class Module(Lifetime["Handle"]):
    """Loaded code of one device.  Made by `Device.compile`; ``module["name"]`` is a `Kernel`.

    Unloaded when its handle and its last kernel are gone and no launch is in flight.
    """

    __slots__ = ("_code", "_device")

    def __init__(self, device: Device, code: SupportsCode, binary: bytes, *, label: str | None = None) -> None:
        self._device = device
        self._code = code
        slot: list[Handle] = []
        super().__init__(None, _unload, code, slot, kind="module", nbytes=len(binary), label=label, parents=(device,))
        try:
            slot.extend(map(code.load, (binary,)))  # one C call: an interrupt cannot lose the handle
        except BaseException:
            self.close()
            raise
        self._value = slot[0]

    def __getitem__(self, name: str) -> Kernel:
        """The kernel of that name.  Errors: `BackendError` that lists the names there are."""
        return Kernel(self, name)


class Kernel(Lifetime["Handle"]):
    """One entry point of a module.

    >>> import lifetimes, numpy as np
    >>> with lifetimes.open("sim") as device:
    ...     double = device.compile("def double(a, b): b.view('f8')[:3] = 2 * a.view('f8')[:3]")["double"]
    ...     x, y = device.asarray(np.arange(3.0)), device.empty(3)
    ...     _ = double.launch(x, y, size=3, modes="rw")
    ...     y.numpy()
    array([0., 2., 4.])
    """

    __slots__ = ("_device", "_flight", "_launch")

    def __init__(self, module: Module, name: str) -> None:
        self._device = module._device
        self._launch = module._code.launch
        self._flight = InFlight()
        handle = module._code.function(module.value, name)
        super().__init__(handle, kind="kernel", label=name, parents=(module,))
        self._cell.holders[next_key()] = Pending(self._flight)

    def launch(
        self, *args: Any, size: int | Sequence[int], modes: str | Sequence[Mode] | None = None, stream: Any = None
    ) -> Work:
        """Enqueue the kernel over ``size`` items; returns the work.

        Arrays among ``args`` are pinned together for the launch and passed as addresses; scalars are passed as they are.
        ``modes`` has one letter an array, as in `Device.call`.  Their memory is not reused before the kernel has finished.
        Errors: those of `Device.use`, `ClosedError`, `BackendError`.
        """
        handle = self.value
        arrays = [each for each in args if isinstance(each, Array)]
        using = self._device._in_use(list(zip(arrays, parse_modes(modes, len(arrays)), strict=True)), stream)
        timeline = using.timeline
        with using as addresses:
            at = iter(addresses)
            raw = [next(at) if isinstance(each, Array) else each for each in args]
            # Before the launch, and one more than it will be: a stale count could unload the module under it.
            self._flight.last[timeline] = timeline.issued + 1
            self._launch(handle, (size,) if isinstance(size, int) else tuple(size), raw, timeline.handle)
        if not arrays:
            timeline.tick()
        self._flight.last[timeline] = timeline.issued
        return Work(timeline, timeline.issued)

    def bind(self, *args: Any, modes: str | Sequence[Mode] | None = None) -> BoundKernel:
        """The kernel with its arguments, which it holds until it is dropped or bound anew."""
        return BoundKernel(self, args, modes)


class BoundKernel:
    """A kernel and its arguments.  Holds both."""

    __slots__ = ("args", "kernel", "modes")

    def __init__(self, kernel: Kernel, args: tuple[Any, ...], modes: str | Sequence[Mode] | None) -> None:
        self.kernel = kernel
        self.args = args
        self.modes = modes

    def rebind(self, *args: Any) -> None:
        """Other arguments; those bound before are let go."""
        self.args = args

    def launch(self, size: int | Sequence[int], stream: Any = None) -> Work:
        """As `Kernel.launch`."""
        return self.kernel.launch(*self.args, size=size, modes=self.modes, stream=stream)


def _unload(code: SupportsCode, slot: list[Handle]) -> None:
    for handle in slot:
        code.unload(handle)
