"""Programs: from source to a binary that says what is in it, and back to kernels.

Note [Binaries].  The runtime's own binary is wrapped: before it stand the parameters of the kernels (see `parameters`), which
device it is for, and the source.  A binary that this very runtime made is loaded without compiling; any other is built
again from the source.  With PoCL it is also the faster code to launch: kernels of a program built from source are compiled
anew for every new local size, those of a binary are not.
"""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import asdict
from typing import Any, Final

from lifetimes.errors import BackendError, CompileError
from lifetimes_opencl.parameters import Parameter, parameters_of
from lifetimes_opencl.plan import Plan
from lifetimes_opencl.runtime import cl, raw

__all__ = ["OpenCLKernel", "OpenCLModule", "compile_source", "load_binary"]

MAGIC: Final = b"lifetimes-opencl-1\n"
OPTIONS: Final = "-cl-kernel-arg-info"
_LOG_LINE: Final = re.compile(r"(?:line |[:(]|^)(\d+)(?:[:,]\d+\)?)?: *(?:(?:fatal )?error: *)?(.*)", re.MULTILINE)
"""The line's number, and what is said of it, in the logs of compilers that were seen."""


class OpenCLModule:
    """A module handle: a built program, and its kernels by name."""

    __slots__ = ("kernels", "program")

    def __init__(self, program: Any, parameters: dict[str, list[Parameter] | None]) -> None:
        self.program = program  # None once unloaded
        names = [name for name in program.get_info(cl.program_info.KERNEL_NAMES).split(";") if name]
        self.kernels = {name: OpenCLKernel(name, self, parameters.get(name)) for name in names}

    def unload(self) -> None:
        """Give the program and its kernels back."""
        for kernel in self.kernels.values():
            kernel.spare.clear()
        self.program = None

    def __repr__(self) -> str:
        return f"<OpenCL module of {', '.join(self.kernels) or 'nothing'}{'' if self.program else ', unloaded'}>"


class OpenCLKernel:
    """A function handle.

    Note [Spare kernels].  The runtime's kernel object holds the arguments of the next launch, so two threads must not use
    one at a time.  A launch takes one out of ``spare``, or makes one, and puts it back.
    """

    __slots__ = ("module", "name", "parameters", "plan", "spare")

    def __init__(self, name: str, module: OpenCLModule, parameters: list[Parameter] | None) -> None:
        self.name = name
        self.module = module
        self.parameters = parameters
        self.plan = Plan.of(parameters)
        self.spare: deque[Any] = deque()

    def take(self) -> Any:
        """A kernel object that nobody else uses.  Errors: `BackendError` when its module was unloaded."""
        try:
            return self.spare.pop()
        except IndexError:
            program = self.module.program
            if program is None:
                raise BackendError(f"the kernel {self.name!r} was launched after its module was unloaded") from None
            return cl.Kernel(program, self.name)

    def __repr__(self) -> str:
        return f"<OpenCL kernel {self.name}>"


def fingerprint(device: Any) -> list[str]:
    """What a runtime's binary is good for: this device under this version of its runtime."""
    return [device.platform.name, device.platform.version, device.name, device.driver_version]


def compile_source(context: Any, device: Any, source: str, options: str) -> bytes:
    """Note [Binaries].  Errors: `CompileError` with the line, the log and the numbered source."""
    program = build(context, device, source, options)
    kernels: dict[str, Any] = {}
    for name in program.get_info(cl.program_info.KERNEL_NAMES).split(";"):
        if name:
            found = parameters_of(cl.Kernel(program, name))
            kernels[name] = found and [asdict(parameter) for parameter in found]
    try:
        binary: bytes = program.get_info(cl.program_info.BINARIES)[0]
    except (cl.Error, IndexError):  # a runtime without: the source is enough
        binary = b""
    header = {"device": fingerprint(device), "kernels": kernels, "options": options, "source": source}
    text = json.dumps(header).encode()
    return MAGIC + len(text).to_bytes(8, "little") + text + binary


def build(context: Any, device: Any, source: str, options: str) -> Any:
    """A built program.  Errors: `CompileError`."""
    # Not the class `Program` of PyOpenCL: it warns of compiler output and has a cache on disk of its own.
    program = raw._Program(context, source)
    try:
        program._build(f"{OPTIONS} {options}".encode(), [device])
    except cl.Error as error:
        log = program.get_build_info(device, cl.program_build_info.LOG) or str(error)
        raise compile_error(source, str(log).strip()) from None
    return program


def compile_error(source: str, log: str) -> CompileError:
    r"""The error that says where: the line if the log has one, the numbered source, and the log.

    >>> print(str(compile_error("int x;\nretrun 3;", "error: a.cl:2:1: unknown type name")).splitlines()[0])
    line 2: unknown type name
    """
    place = _LOG_LINE.search(log)
    if place is not None:
        head = f"line {place.group(1)}: {place.group(2)}"
    else:
        head = log.splitlines()[0] if log else "the compiler says nothing"
    numbered = "\n".join(f"{number:4d}  {text}" for number, text in enumerate(source.split("\n"), 1))
    return CompileError(f"{head}\n{numbered}\nlog of the compiler: {log}")


def load_binary(context: Any, device: Any, binary: bytes) -> OpenCLModule:
    """A module from `compile_source`'s bytes, or from a bare binary of the runtime.

    Errors: `BackendError` for anything else; `CompileError` when the source has to be built anew and does not.
    """
    if not binary.startswith(MAGIC):
        return OpenCLModule(load_bare(context, device, binary), {})
    start = len(MAGIC) + 8
    end = start + int.from_bytes(binary[len(MAGIC) : start], "little")
    try:
        header = json.loads(binary[start:end])
        parameters = {
            name: None if found is None else [Parameter(**each) for each in found]
            for name, found in header["kernels"].items()
        }
        own = binary[end:] if header["device"] == fingerprint(device) else b""
        source, options = header["source"], header["options"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackendError(f"this binary is damaged: {error}") from error
    program = None
    if own:
        try:
            program = load_bare(context, device, own)
        except BackendError:  # the runtime has changed under the same version
            program = None
    return OpenCLModule(program or build(context, device, source, options), parameters)


def load_bare(context: Any, device: Any, binary: bytes) -> Any:
    """A built program from the runtime's own bytes.  Errors: `BackendError`."""
    try:
        program = raw._Program(context, [device], [bytes(binary)])
        program._build(b"", [device])
    except cl.Error as error:
        raise BackendError(
            f"these {len(binary):,} bytes are no program that {device.name.strip()!r} can load: {error}"
        ) from error
    return program
