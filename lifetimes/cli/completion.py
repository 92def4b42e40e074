"""Print a script that lets bash, zsh or fish complete the commands of lifetimes, their options and their values.

The script is made from what is installed now; print it anew after installing more back ends, tables or policies.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Final

from lifetimes import policies, registry, tables
from lifetimes.cli.bench_parts import PARTS
from lifetimes.cli.commands import COMMANDS
from lifetimes.cli.completion_shells import SHELLS, Option
from lifetimes.cli.parser import command_parser, main_parser

__all__ = ["EXAMPLES", "FILES", "add_arguments", "run", "script"]

EXAMPLES: Final = """\
examples:
  eval "$(lifetimes completion bash)"    in ~/.bashrc
  eval "$(lifetimes completion zsh)"     in ~/.zshrc, after compinit
  lifetimes completion fish > ~/.config/fish/completions/lifetimes.fish"""

FILES: Final = object()
"""The value of the option is a file."""

VALUES: Final[dict[str, Callable[[], Sequence[str]] | object]] = {
    "after": FILES,
    "backend": registry.names,
    "before": FILES,
    "csv": FILES,
    "data": FILES,
    "html": FILES,
    "json": FILES,  # where it takes a value
    "part": lambda: tuple(PARTS),
    "plot": FILES,
    "policy": policies.names,
    "program": FILES,
    "table": tables.names,
    "trace": FILES,
}
"""What the value of an option may be, by the option's name; an option's own ``choices`` need no row."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", choices=sorted(SHELLS), help="the shell that the script is for")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(script(arguments.shell), end="")
    return 0


def script(shell: str) -> str:
    """The script for one shell.

    >>> "complete -F _lifetimes lifetimes" in script("bash")
    True
    """
    options = {row.name: describe(command_parser(row)) for row in COMMANDS}
    return SHELLS[shell](options, describe(main_parser()))


def describe(parser: argparse.ArgumentParser) -> list[Option]:
    """What a parser knows.  argparse has no public list of it; ``_actions`` has been there since its beginning."""
    found = []
    for action in parser._actions:
        source = VALUES.get(action.dest)
        values = tuple(map(str, action.choices or (source() if callable(source) else ())))
        takes = "" if action.nargs == 0 else str(action.metavar or action.dest)
        text = "" if action.help is None else " ".join((action.help % {"default": action.default}).split())
        many = action.nargs in ("*", argparse.REMAINDER)
        found.append(Option(tuple(action.option_strings), text, takes, values, source is FILES and bool(takes), many))
    return found
