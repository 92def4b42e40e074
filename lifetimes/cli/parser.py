"""From words to a command and its options, with a hint where a word is not quite right."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final, NoReturn

from lifetimes.cli.commands import COMMANDS, Command, find, names
from lifetimes.cli.failing import BAD_INPUT, InputError

__all__ = ["Parser", "command_parser", "main_parser", "parse"]

DESCRIPTION: Final = """\
Ownership, interchangeable memory tables, eviction and leak tracking for code that runs on GPUs and other devices.
Nothing here needs a GPU: the back end "host" is ordinary memory under a limit."""

FIRST_STEPS: Final = """\
examples:
  lifetimes doctor                     what works here, and what is missing
  lifetimes demo                       256 MiB of data under a limit of 64 MiB
  lifetimes demo --data measured.npy   the same on a matrix of your own
  lifetimes COMMAND --help             everything about one command

exit status: 0 it worked, 1 it did not, 2 it was not asked for in a way that can work, 130 interrupted"""


class Help(argparse.RawDescriptionHelpFormatter):
    """Wraps paragraphs to the terminal and leaves blocks with indented lines as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = text.split("\n\n")
        return "\n\n".join(block if "\n " in block else textwrap.fill(block, width) for block in blocks)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line with the nearest option, and which takes no abbreviations."""

    def __init__(self, prog: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=Help,
            allow_abbrev=False,  # an option added later must not change what a script means
        )
        self.add_argument("--traceback", action="store_true", help="show where an error came from")

    def error(self, message: str) -> NoReturn:
        """Errors: `SystemExit` with the status for bad input, always."""
        unknown = re.match(r"unrecognized arguments: (-\S+)", message)
        hint = nearest(unknown[1].partition("=")[0], options(self)) if unknown else ""
        self.exit(BAD_INPUT, f"{self.prog}: {message}{hint} (see {self.prog} --help)\n")


def parse(words: Sequence[str]) -> tuple[Command, argparse.Namespace] | None:
    """The command and its options; None when there is nothing to run and help was asked for.

    Errors: `InputError` for a command that is not there, with the nearest; `SystemExit` as argparse has it.
    """
    at = next((number for number, word in enumerate(words) if not word.startswith("-")), len(words))
    before = main_parser().parse_args(words[:at])
    if at == len(words):
        main_parser().print_help()
        return None
    command = find(words[at])
    if command is None:
        there_are = ", ".join(names())
        raise InputError(f"there is no command {words[at]!r}{nearest(words[at], names())}; there are {there_are}")
    parser = command_parser(command)
    options = parser.parse_args(join_values(words[at + 1 :], parser))
    options.traceback = options.traceback or before.traceback
    return command, options


def main_parser() -> Parser:
    """The parser of what stands before the command."""
    from lifetimes import __version__  # the package is complete by the time somebody parses

    width = max(map(len, names()))
    listed = "\n".join(f"  {command.name:{width}}  {command.summary}" for command in COMMANDS)
    parser = Parser("lifetimes", f"{DESCRIPTION}\n\ncommands:\n{listed}", FIRST_STEPS)
    parser.usage = "lifetimes [--version] [--help] COMMAND [OPTIONS]"
    python = ".".join(map(str, sys.version_info[:3]))
    parser.add_argument("--version", action="version", version=f"lifetimes {__version__} (Python {python})")
    return parser


def command_parser(command: Command) -> Parser:
    """The parser of one command's options."""
    module = command.load()
    parser = Parser(f"lifetimes {command.name}", (module.__doc__ or "").strip(), module.EXAMPLES)
    module.add_arguments(parser)
    return parser


def options(parser: argparse.ArgumentParser) -> list[str]:
    """The options that it knows, as they are written."""
    return [option for action in parser._actions for option in action.option_strings]


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint at what was meant, or nothing.

    >>> nearest("docter", ["demo", "doctor"]), nearest("zzz", ["demo"])
    ('; did you mean doctor?', '')
    """
    found = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else ""


def join_values(words: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """``--limit -5MiB`` as ``--limit=-5MiB``: argparse would take the value for an option and miss the real fault.

    >>> parser = Parser("x", "", "")
    >>> _ = parser.add_argument("--limit")
    >>> join_values(["--limit", "-5MiB", "--traceback"], parser)
    ['--limit=-5MiB', '--traceback']
    """
    with_value = {option for action in parser._actions if action.nargs != 0 for option in action.option_strings}
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in with_value and re.match(r"-\d", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined
