"""The completion scripts, asked by a real shell where there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lifetimes import policies, registry, tables
from lifetimes.cli import commands, main
from lifetimes.cli.completion import script

ASK = """
{script}
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_lifetimes
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def complete(*words: str, folder: Path | None = None) -> list[str]:
    """What bash offers after these words, the last of which is being typed."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    quoted = " ".join(f"'{word}'" for word in ("lifetimes", *words))
    asked = ASK.format(script=script("bash"), words=quoted)
    done = subprocess.run([bash, "-c", asked], capture_output=True, text=True, check=True, cwd=folder)
    return [line for line in done.stdout.splitlines() if line]


def test_commands() -> None:
    assert set(commands.names()) <= set(complete(""))
    assert complete("do") == ["doctor"]
    assert complete("--v") == ["--version"]


def test_options_of_a_command() -> None:
    assert complete("demo", "--li") == ["--limit"]
    assert "--timeout" in complete("doctor", "--")
    assert "--timeout" not in complete("demo", "--")
    assert complete("--traceback", "demo", "--js") == ["--json"]


@pytest.mark.parametrize(
    ("option", "names"), [("--backend", registry.names), ("--table", tables.names), ("--policy", policies.names)]
)
def test_values_come_from_the_registries(option: str, names) -> None:
    assert complete("demo", option, "") == list(names())
    assert complete("demo", option, "=", "") == list(names())  # how bash hands over --backend=
    assert complete("demo", option, "=") == list(names())


def test_a_registered_table_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables._parts, "rows", {**tables._parts.rows, "zebra": "package.module:Zebra"})
    assert complete("demo", "--table", "z") == ["zebra"]


def test_choices_of_a_positional() -> None:
    assert complete("completion", "z") == ["zsh"]


def test_files(tmp_path: Path) -> None:
    (tmp_path / "two words.npy").touch()
    (tmp_path / "other.npy").touch()
    assert complete("demo", "--data", "tw", folder=tmp_path) == ["two words.npy"]


def test_files_that_stand_by_themselves(tmp_path: Path) -> None:
    for name in ("train it.py", "uses.csv", "before.json"):
        (tmp_path / name).touch()
    assert complete("leaks", "tr", folder=tmp_path) == ["train it.py"]
    assert complete("leaks", "--html", "us", folder=tmp_path) == ["uses.csv"]
    assert complete("replay", "us", folder=tmp_path) == ["uses.csv"]
    assert complete("replay", "--lim", folder=tmp_path) == ["--limit"]
    assert complete("diff", "before.json", "be", folder=tmp_path) == ["before.json"]
    assert "1:before:_files" in script("zsh")
    assert "2:after:_files" in script("zsh")


def test_parts_of_a_bench() -> None:
    assert complete("bench", "t") == ["tables"]
    assert complete("bench", "tables", "p") == ["pool"]


def test_no_guess_for_a_free_value(tmp_path: Path) -> None:
    assert complete("demo", "--limit", "", folder=tmp_path) == []


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_every_script_is_well_formed(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["completion", shell]) == 0
    said = capsys.readouterr()
    assert not said.err
    for word in (*commands.names(), "judy", "sim", "traceback"):
        assert word in said.out
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"there is no {shell} to read it")
    file = tmp_path / "script"
    file.write_text(said.out)
    done = subprocess.run([path, "-n", str(file)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
