"""The command line itself: help that teaches, errors of one line, statuses that a script can read."""

from __future__ import annotations

import argparse
import errno
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

import lifetimes
from lifetimes.cli import commands, main
from lifetimes.cli.failing import InputError, one_line
from lifetimes.cli.parser import command_parser


def only_line(text: str) -> str:
    assert text.count("\n") == 1, text
    assert text.endswith("\n")
    return text


def stand_in(monkeypatch: pytest.MonkeyPatch, run) -> None:
    """The command ``demo`` does something else."""
    module = SimpleNamespace(__doc__="Stands in.", EXAMPLES="none", add_arguments=lambda parser: None, run=run)
    monkeypatch.setattr(commands.Command, "load", lambda self: module)


def fail_with(error: BaseException):
    def run(arguments: argparse.Namespace) -> int:
        raise error

    return run


def test_help_names_every_command_and_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr()
    assert not said.err
    for command in commands.COMMANDS:
        assert command.name in said.out
        assert command.summary in said.out
    assert "examples:" in said.out
    assert "exit status" in said.out


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    alone = capsys.readouterr().out
    main(["--help"])
    assert alone == capsys.readouterr().out


@pytest.mark.parametrize("words", [[], *[[name] for name in commands.names()]])
def test_help_fits_80_columns(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*words, "--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("command", commands.names())
def test_the_help_of_a_command_says_what_it_is_for(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"usage: lifetimes {command}" in said
    assert f"  lifetimes {command}" in said.partition("examples:")[2] or f"(lifetimes {command}" in said
    row = commands.find(command)
    assert row is not None
    for action in command_parser(row)._actions:
        assert action.help, f"{action.option_strings} has no help"


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"lifetimes {lifetimes.__version__} (Python ")


@pytest.mark.parametrize(
    ("word", "hint"), [("dmo", "did you mean demo?"), ("doktor", "did you mean doctor?"), ("zzzz", "")]
)
def test_an_unknown_command_suggests_the_nearest(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 2
    said = capsys.readouterr()
    assert not said.out
    line = only_line(said.err)
    assert f"there is no command {word!r}" in line
    assert hint in line
    assert ("did you mean" in line) == bool(hint)
    assert "demo, doctor" in line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["demo", "--lmit", "1MiB"], "did you mean --limit?"),
        (["demo", "--limit"], "--limit: expected one argument"),
        (["demo", "--device", "one"], "'one'"),
        (["demo", "--lim", "1MiB"], "unrecognized arguments: --lim"),  # no abbreviations
        (["demo", "extra"], "unrecognized arguments: extra"),
        (["doctor", "--timeout", "-3"], "'-3' is no positive number"),
        (["doctor", "--timeout", "soon"], "'soon' is no positive number"),
        (["doctor", "--backend", "hots"], "did you mean host?"),
        (["completion", "tcsh"], "'tcsh'"),
        (["completion"], "shell"),
        (["--wrong"], "unrecognized arguments: --wrong"),
    ],
)
def test_a_wrong_option_is_one_line_and_status_2(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert not said.out
    assert says in only_line(said.err)


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (InputError("the limit is odd; give an even one"), 2, "lifetimes demo: the limit is odd; give an even one\n"),
        (
            lifetimes.OutOfMemory("no 3 MiB\n  tried: pool\nraise the limit"),
            1,
            "no 3 MiB tried: pool raise the limit\n",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "No space left on device\n"),
        (ZeroDivisionError("division by zero"), 1, "ZeroDivisionError: division by zero\n"),
        (KeyboardInterrupt(), 130, "lifetimes demo: interrupted\n"),
        (ExceptionGroup("closing failed", [ValueError("a"), OSError("b")]), 1, "closing failed: ValueError: a; b\n"),
    ],
)
def test_an_error_is_one_line_and_its_status(
    error: BaseException, status: int, says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, fail_with(error))
    assert main(["demo"]) == status
    assert only_line(capsys.readouterr().err).endswith(says)


@pytest.mark.parametrize("words", [["--traceback", "demo"], ["demo", "--traceback"]])
def test_the_traceback_is_shown_on_demand(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, fail_with(InputError("odd")))
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "Traceback (most recent call last)" in said
    assert said.endswith("lifetimes demo: odd\n")


def test_a_message_is_never_empty() -> None:
    assert one_line(MemoryError()) == "MemoryError"
    assert one_line(ValueError()) == "ValueError"


@pytest.mark.parametrize("words", [["--help"], ["completion", "bash"], ["doctor", "--no-isolate", "--backend", "sim"]])
def test_a_reader_who_goes_is_no_error(words: list[str]) -> None:
    """As in ``lifetimes doctor | head -1``: no traceback, and the status that shells have for it."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "lifetimes", *words]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_error(closed: str) -> None:
    command = f"{sys.executable} -W error -m lifetimes doctor --no-isolate --backend sim {closed}"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_every_command_has_a_row_and_its_module() -> None:
    for command in commands.COMMANDS:
        module = command.load()
        assert callable(module.add_arguments)
        assert callable(module.run)
        assert module.EXAMPLES.startswith("examples:")
        assert (module.__doc__ or "").strip()
