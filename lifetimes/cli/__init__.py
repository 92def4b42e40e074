"""The command `lifetimes`: `commands` lists what there is, `parser` reads the line, `app` runs it and tells how it ended.

Each command is one module with `add_arguments` and `run`, and one row in `commands.COMMANDS`.  The commands are written the
way a user of the library writes; `demo_work` and `demo_leak` are meant to be read as examples.
"""

from lifetimes.cli.app import main

__all__ = ["main"]
