"""Where commands print what is meant for people."""

from __future__ import annotations

import sys

from rich.console import Console

__all__ = ["Output"]


class Output(Console):
    """Stdout, in the colours that the text itself asks for.  A reader who has gone is told to `main`, as by ``print``."""

    def __init__(self) -> None:
        super().__init__(file=sys.stdout, highlight=False)

    def on_broken_pipe(self) -> None:
        """Newer versions of rich would end the process here."""
        raise BrokenPipeError
