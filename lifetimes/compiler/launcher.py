"""`launch`: the one function through which every kernel is called, itself machine code made at first use.

    launch(holder, kernel, template, words, lo, hi, first, second, ...)

copies the ``words`` words at ``template`` to the stack, puts the given numbers over the first of them, and calls
``kernel(copy, lo, hi)``.  It does not look at ``holder``, which is there to be held by whoever holds the arguments: the
kernel's code, and what the template lies in.  A call has no state outside its stack, so any number of threads may launch
one kernel.  The general form lets other threads run meanwhile; `launch_briefly` does not, which is better for kernels of
a few microseconds: a thread that gives the interpreter away may wait long until it gets it back.

It is built against CPython's stable calling convention (METH_FASTCALL): about 0.1 us a call, where ctypes takes 0.6.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

from lifetimes.compiler import native, target

__all__ = ["Launch", "launchers"]

Launch: TypeAlias = Callable[..., None]

_METH_FASTCALL: Final = 0x0080

_FUNCTION: Final = """
define ptr @{name}(ptr %self, ptr %args, i64 %count) {{
entry:
  %kernel = call i64 @number(ptr %args, i64 1)
  %template = call i64 @number(ptr %args, i64 2)
  %words = call i64 @number(ptr %args, i64 3)
  %lo = call i64 @number(ptr %args, i64 4)
  %hi = call i64 @number(ptr %args, i64 5)
  %block = alloca i64, i64 %words, align 16
  %from = inttoptr i64 %template to ptr
  br label %copy
copy:
  %i = phi i64 [ 0, %entry ], [ %i.next, %copy ]
  %source = getelementptr i64, ptr %from, i64 %i
  %word = load i64, ptr %source
  %place = getelementptr i64, ptr %block, i64 %i
  store i64 %word, ptr %place
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %words
  br i1 %more, label %copy, label %given
given:
  %some = icmp ugt i64 %count, 6
  br i1 %some, label %put, label %run
put:
  %j = phi i64 [ 6, %given ], [ %j.next, %put ]
  %number = call i64 @number(ptr %args, i64 %j)
  %at = sub i64 %j, 6
  %spot = getelementptr i64, ptr %block, i64 %at
  store i64 %number, ptr %spot
  %j.next = add i64 %j, 1
  %left = icmp ult i64 %j.next, %count
  br i1 %left, label %put, label %run
run:
  %function = inttoptr i64 %kernel to ptr
{before}
  call void %function(ptr %block, i64 %lo, i64 %hi)
{after}
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}}
"""

_PROGRAM: Final = """
@_Py_NoneStruct = external global i8
declare i64 @PyLong_AsUnsignedLongLongMask(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)

define internal i64 @number(ptr %args, i64 %at) {
  %where = getelementptr ptr, ptr %args, i64 %at
  %object = load ptr, ptr %where
  %number = call i64 @PyLong_AsUnsignedLongLongMask(ptr %object)
  ret i64 %number
}
"""

_OUTSIDE: Final = (
    "_Py_NoneStruct", "PyLong_AsUnsignedLongLongMask", "PyEval_SaveThread", "PyEval_RestoreThread", "Py_IncRef",
)  # fmt: skip


class _MethodDefinition(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_kept: list[Any] = []  # method definitions and code must outlive the functions made of them, which is for ever


@cache
def launchers() -> tuple[Launch, Launch]:
    """`launch` and `launch_briefly`."""
    text = _PROGRAM
    text += _FUNCTION.format(
        name="launch",
        before="  %state = call ptr @PyEval_SaveThread()",
        after="  call void @PyEval_RestoreThread(ptr %state)",
    )
    text += _FUNCTION.format(name="launch_briefly", before="", after="")
    chosen = target.best()
    names = ("launch", "launch_briefly")
    symbols = {name: _address(name) for name in _OUTSIDE}
    slot: list[Any] = []
    addresses = native.link(native.compile_object(text, chosen), symbols, chosen, names, slot)
    _kept.append(slot)
    general, brief = (_function(name, address) for name, address in zip(names, addresses, strict=True))
    return general, brief


def _function(name: str, address: int) -> Launch:
    definition = _MethodDefinition(name.encode(), address, _METH_FASTCALL, None)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    function: Launch = make(ctypes.addressof(definition), None, None)
    _kept.append((definition, function))
    return function


def _address(name: str) -> int:
    symbol = ctypes.c_char.in_dll(ctypes.pythonapi, name) if name.startswith("_Py") else getattr(ctypes.pythonapi, name)
    if name.startswith("_Py"):
        return ctypes.addressof(symbol)
    found = ctypes.cast(symbol, ctypes.c_void_p).value
    assert found is not None, "a function that was found has an address"
    return found
