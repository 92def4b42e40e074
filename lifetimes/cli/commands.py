"""What commands there are.  A new one is a module and a row here."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Final, Protocol, cast

__all__ = ["COMMANDS", "Command", "CommandModule", "find", "names"]


class CommandModule(Protocol):
    """What the module of a command has.  Its docstring is the description that ``--help`` shows."""

    EXAMPLES: str
    """must: lines to copy, each with what it is for."""
    add_arguments: Callable[[ArgumentParser], None]
    """must: declare the options."""
    run: Callable[[Namespace], int]
    """must: do it; the exit status.  Errors: `InputError` for what the user can mend, and the library's own."""


@dataclass(frozen=True, slots=True)
class Command:
    """A row: the name, what it is for in a few words, and the module, which is imported when the command is used."""

    name: str
    summary: str
    module: str

    def load(self) -> CommandModule:
        """The module."""
        return cast(CommandModule, import_module(self.module))


COMMANDS: Final = (
    Command("demo", "work on a data set four times the memory limit, and find a leak", "lifetimes.cli.demo"),
    Command("doctor", "which back ends, tables and policies work here, and why not", "lifetimes.cli.doctor"),
    Command("leaks", "run a program and say what it leaves alive, and who holds it", "lifetimes.cli.leaks"),
    Command("diff", "what one report of leaks has and another has not", "lifetimes.cli.diff"),
    Command("replay", "a recorded trace, under each table, policy and limit", "lifetimes.cli.replay"),
    Command("bench", "measure tables, eviction, the pool and launches on this machine", "lifetimes.cli.bench"),
    Command("completion", "a script that lets a shell complete these commands", "lifetimes.cli.completion"),
)


def names() -> tuple[str, ...]:
    """The names, in the order in which help lists them.

    >>> "doctor" in names()
    True
    """
    return tuple(command.name for command in COMMANDS)


def find(name: str) -> Command | None:
    """The row of that name, or None."""
    return next((command for command in COMMANDS if command.name == name), None)
