"""From LLVM text to code that can be called, and back to nothing: one loaded module is one lifetime.

llvmlite generates the code; LLVM's optimiser in the middle is left out, because the text has its vectors already and the
optimiser would double the time and leak at each run.  Each module has a linker of its own, since a shared one never
gives a library's names back.  The one resource tracker that linking returns keeps the code: a second one, from a
look-up, would take the code along when it goes.
"""

from __future__ import annotations

import atexit
import threading
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from lifetimes.compiler.emit import vectormath
from lifetimes.compiler.emit.llvm import ENTRY_POINT, Program
from lifetimes.compiler.target import Target, require_llvm
from lifetimes.errors import CompileError
from lifetimes.lifetime import Lifetime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Code", "assembly", "compile_object", "link", "version"]

OPTIMISE: Final = 2
"""For the code generator only.  0 aborts the process on AVX-512 masks."""


@cache
def version() -> str:
    """llvmlite's version and LLVM's: other versions make other code."""
    llvm = require_llvm()
    import llvmlite

    return f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"


_making = threading.Lock()
_machines: dict[Target, Any] = {}


def _machine(target: Target) -> Any:
    """LLVM's code generator for a target.  llvmlite takes its own lock around each call of it."""
    found = _machines.get(target)
    if found is None:
        llvm = require_llvm()
        with _making:  # leaf lock: nothing of ours is called under it
            if not _machines:
                llvm.initialize_native_target()
                llvm.initialize_native_asmprinter()
            found = llvm.Target.from_default_triple().create_target_machine(
                cpu=target.cpu, features=target.features, opt=OPTIMISE, codemodel="jitdefault", jit=True
            )
            found = _machines.setdefault(target, found)
    return found


def _parsed(text: str) -> Any:
    llvm = require_llvm()
    try:
        # A context of its own, so that types and constants of one program do not stay for the life of the process.
        module = llvm.parse_assembly(text, context=llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM refused a program of ours, which is a bug in lifetimes: {error}\n{text}") from error
    return module


def compile_object(text: str, target: Target) -> bytes:
    """Machine code as an object file.  Errors: `CompileError` with text and log."""
    module = _parsed(text)
    module.triple = _machine(target).triple
    found: bytes = _machine(target).emit_object(module)
    return found


def assembly(text: str, target: Target) -> str:
    """The same as assembler text: made from the program anew, so it needs no loaded code."""
    module = _parsed(text)
    module.triple = _machine(target).triple
    found: str = _machine(target).emit_assembly(module)
    return found


def link(binary: bytes, symbols: Mapping[str, int], target: Target, names: Sequence[str], slot: list[Any]) -> list[int]:
    """The addresses of ``names`` in an object file.  What keeps the code goes into ``slot``, the last thing first to go.

    Errors: `CompileError`.
    """
    llvm = require_llvm()
    try:
        slot.append(llvm.create_lljit_compiler(_machine(target)))
        builder = llvm.JITLibraryBuilder().add_object_img(binary)
        for name in names:
            builder.export_symbol(name)
        for symbol, address in symbols.items():
            builder.import_symbol(symbol, address)
        slot.append(builder.link(slot[0], "kernel"))
        return [slot[1][name] for name in names]
    except RuntimeError as error:
        raise CompileError(f"a program of ours did not link, which is a bug in lifetimes: {error}") from error


class Code(Lifetime[int]):
    """Loaded machine code: the value is the address of its function.  Unloaded when the last handle goes.

    Whoever calls the address holds the handle meanwhile.
    """

    __slots__ = ()

    def __init__(self, program: Program, binary: bytes, target: Target, *, label: str | None = None) -> None:
        slot: list[Any] = []
        super().__init__(0, _unload, slot, kind="code", nbytes=len(binary), label=label)
        try:
            symbols = {symbol: vectormath.address(symbol) for symbol in program.symbols}
            self._value = link(binary, symbols, target, [ENTRY_POINT], slot)[0]
        except BaseException:
            self.close()
            raise


_exiting: list[bool] = []
atexit.register(_exiting.append, True)


def _unload(slot: list[Any]) -> None:
    if _exiting:  # threads may still run it; the system takes it back
        return
    while slot:
        slot.pop().close()  # the tracker, which holds the code, before the linker
