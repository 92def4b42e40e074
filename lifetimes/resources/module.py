"""`Module` and `Kernel`: loaded code.  A module stays while a kernel of it is in flight, on any stream."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import TYPE_CHECKING, Any

from lifetimes.cell import Standing, next_key
from lifetimes.lifetime import Lifetime
from lifetimes.resources.array import Array
from lifetimes.resources.in_flight import LastLaunches
from lifetimes.resources.in_use import parse_modes
from lifetimes.resources.layout import check_shape
from lifetimes.timeline import Work

if TYPE_CHECKING:
    from lifetimes._typing import Mode
    from lifetimes.backend import Handle, SupportsCode
    from lifetimes.device import Device

__all__ = ["BoundKernel", "Kernel", "Module"]


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
            slot.extend(starmap(code.load, ((binary,),)))  # one C call: an interrupt cannot lose the handle
            self._value = slot[0]
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Kernel:
        """The kernel of that name.  Errors: `BackendError` that lists the names there are, `ClosedError`."""
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

    __slots__ = ("_code", "_device", "_launches", "_token")

    def __init__(self, module: Module, name: str) -> None:
        self._device = module._device
        self._code = module._code
        self._launches = LastLaunches()
        self._token = next_key()
        with module.use(f"looking for the kernel {name!r}") as loaded:
            super().__init__(module._code.function(loaded, name), kind="kernel", label=name, parents=(module,))

    def launch(
        self, *args: Any, size: int | Sequence[int], modes: str | Sequence[Mode] | None = None, stream: Any = None
    ) -> Work:
        """Enqueue the kernel over ``size`` items; returns the work.  No items are no launch.

        Arrays among ``args`` are pinned together for the launch and passed as addresses; scalars are passed as they are.
        ``modes`` has one letter an array, as in `Device.call`.  Their memory is not reused before the kernel has finished.
        Errors: those of `Device.use`, `ClosedError`, `BackendError`; `TypeError` and `ValueError` for a bad size.
        """
        if self.closed:
            self._refuse("it was launched")
        items = check_shape(size, "size")
        arrays = [each for each in args if isinstance(each, Array)]
        using = self._device._in_use(list(zip(arrays, parse_modes(modes, len(arrays)), strict=True)), stream)
        timeline = using.timeline
        with self.use("launch") as handle:
            # From here on the reaper asks the launches before it releases the kernel, and with it the module.
            self._cell.holders.setdefault(self._token, Standing(self._launches))
            try:
                with using as addresses:
                    at = iter(addresses)
                    raw = [next(at) if isinstance(each, Array) else each for each in args]
                    if 0 not in items:
                        self._code.launch(handle, items, raw, timeline.handle)
                sequence = timeline.issued if arrays else timeline.tick()
                self._launches.add(timeline, sequence)
            except BaseException:  # an interrupt cannot say whether the launch was enqueued
                self._launches.add(timeline, timeline.tick())
                raise
        return Work(timeline, sequence)

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
