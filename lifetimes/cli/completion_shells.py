"""The scripts that complete a command line: one function a shell, from the same description of the options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lifetimes.cli.commands import COMMANDS

__all__ = ["SHELLS", "Option", "bash", "fish", "zsh"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option or positional of a command, as a shell has to know it."""

    names: tuple[str, ...]
    """As written; empty for a positional."""
    help: str
    takes: str
    """How the value is called; empty for a flag."""
    values: tuple[str, ...] = ()
    files: bool = False
    many: bool = False
    """There may be several values."""


BASH_FILES: Final = """IFS=$'\\n'; COMPREPLY=($(compgen -f -- "$current")); compopt -o filenames 2>/dev/null"""
"""File names, which may hold blanks."""


def bash(options: dict[str, list[Option]], top: list[Option]) -> str:
    """For bash 3.2 and newer.  ``--option=value`` arrives as three words there."""
    value_cases, word_cases = [], []
    for command, known in options.items():
        words = [name for option in known for name in option.names]
        words += [value for option in known if not option.names for value in option.values]
        act = f'COMPREPLY=($(compgen -W {quote(" ".join(words))} -- "$current"))'
        if any(option.files and not option.names for option in known):
            act = f'case "$current" in -*) {act} ;; *) {BASH_FILES} ;; esac'
        word_cases.append(f"        {command}) {act} ;;")
        for option in known:
            if not option.names or not option.takes:
                continue
            pattern = "|".join(f"{command}:{name}" for name in option.names)
            if option.files:
                act = f"{BASH_FILES}; return"
            elif option.values:
                act = f'COMPREPLY=($(compgen -W {quote(" ".join(option.values))} -- "$current")); return'
            else:
                act = "return"
            value_cases.append(f"        {pattern}) {act} ;;")
    first = [*options, *(name for option in top for name in option.names)]
    return f"""\
# bash completion for lifetimes
_lifetimes() {{
    local IFS=$' \\n' current previous command= at
    current=${{COMP_WORDS[COMP_CWORD]}}
    previous=${{COMP_WORDS[COMP_CWORD-1]}}
    if [ "$current" = "=" ]; then
        current=
    elif [ "$previous" = "=" ]; then
        previous=${{COMP_WORDS[COMP_CWORD-2]}}
    fi
    for ((at = 1; at < COMP_CWORD; at++)); do
        case ${{COMP_WORDS[at]}} in -*) ;; *) command=${{COMP_WORDS[at]}}; break ;; esac
    done
    COMPREPLY=()
    case $command:$previous in
{chr(10).join(value_cases)}
    esac
    case $command in
        "") COMPREPLY=($(compgen -W {quote(" ".join(first))} -- "$current")) ;;
{chr(10).join(word_cases)}
    esac
}}
complete -F _lifetimes lifetimes
"""


def zsh(options: dict[str, list[Option]], top: list[Option]) -> str:
    """For zsh, to be evaluated or to be found on ``fpath`` as ``_lifetimes``."""
    listed = " ".join(quote(f"{row.name}:{row.summary}") for row in COMMANDS)
    cases = [f"        {command}) _arguments {zsh_specs(known)} ;;" for command, known in options.items()]
    return f"""\
#compdef lifetimes
_lifetimes() {{
    local context state state_descr line
    typeset -A opt_args
    local -a known
    known=({listed})
    _arguments -C {zsh_specs(top)} '1:command:->command' '*::option:->option'
    case $state in
    command) _describe command known ;;
    option)
        case $words[1] in
{chr(10).join(cases)}
        esac ;;
    esac
}}
if [ "$funcstack[1]" = "_lifetimes" ]; then _lifetimes "$@"; else compdef _lifetimes lifetimes; fi
"""


def zsh_specs(known: list[Option]) -> str:
    """The options as arguments of zsh's ``_arguments``."""
    specs = []
    position = 0
    for option in known:
        text = option.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
        action = "_files" if option.files else f"({' '.join(option.values)})" if option.values else ""
        value = f":{option.takes}:{action}" if option.takes else ""
        if not option.names:
            position += 1
            specs.append(f"{'*' if option.many else position}{value}")
        specs += [f"{name}[{text}]{value}" for name in option.names]
    return " ".join(map(quote, specs))


def fish(options: dict[str, list[Option]], top: list[Option]) -> str:
    """For fish, to be kept in its folder of completions."""
    lines = ["# fish completion for lifetimes", "complete -c lifetimes -f"]
    for row in COMMANDS:
        lines.append(f"complete -c lifetimes -n __fish_use_subcommand -a {row.name} -d {fish_quote(row.summary)}")
    for option in top:
        lines.append(fish_line("__fish_use_subcommand", option))
    for command, known in options.items():
        lines += [fish_line(f"__fish_seen_subcommand_from {command}", option) for option in known]
    return "\n".join(lines) + "\n"


def fish_line(condition: str, option: Option) -> str:
    """One option for fish."""
    parts = ["complete -c lifetimes", f"-n {fish_quote(condition)}"]
    for name in option.names:
        parts.append(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}")
    if option.takes and option.names:
        parts.append("-r -F" if option.files else "-x")
    elif option.files:
        parts.append("-F")
    if option.values:
        parts.append(f"-a {fish_quote(' '.join(option.values))}")
    return " ".join([*parts, f"-d {fish_quote(option.help)}"])


def quote(text: str) -> str:
    r"""For bash and zsh: nothing inside is special.

    >>> print(quote("it's"))
    'it'\''s'
    """
    return "'" + text.replace("'", "'\\''") + "'"


def fish_quote(text: str) -> str:
    """For fish, where a backslash escapes inside of quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: Final[dict[str, Callable[[dict[str, list[Option]], list[Option]], str]]] = {
    "bash": bash,
    "fish": fish,
    "zsh": zsh,
}
