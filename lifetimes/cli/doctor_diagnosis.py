"""What `lifetimes doctor` finds out: every back end, table and policy, tried with three elements."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass

import numpy as np

import lifetimes
from lifetimes import policies, registry, tables
from lifetimes._resolve import lacks
from lifetimes.cli.doctor_examine import BackendReport, examine, examine_apart
from lifetimes.cli.failing import InputError, one_line
from lifetimes.cli.parser import nearest
from lifetimes.tables.protocol import OrderedTable

__all__ = ["Diagnosis", "PartReport", "diagnose"]


@dataclass(frozen=True, slots=True)
class PartReport:
    """A table or a policy: whether it can be made here, and if not, why; ``note`` is what else there is to say."""

    name: str
    usable: bool
    reason: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that `doctor` found out."""

    versions: dict[str, str]
    backends: tuple[BackendReport, ...]
    tables: tuple[PartReport, ...]
    policies: tuple[PartReport, ...]
    extras: dict[str, str]
    """Tables and policies that are not there, and the extra of the distribution that brings each."""

    @property
    def healthy(self) -> bool:
        """Whether the back end that needs nothing works, or whichever was asked for."""
        decisive = [report for report in self.backends if report.name == "host" or len(self.backends) == 1]
        return any(report.verdict == "works" for report in decisive)


def diagnose(only: str | None = None, *, isolate: bool = True, seconds: float = 60.0) -> Diagnosis:
    """Examine every back end (or ``only`` one), table and policy.  Errors: `InputError` for an unknown ``only``.

    >>> diagnose("host", isolate=False).healthy
    True
    """
    names = registry.names()
    if only is not None and only not in names:
        raise InputError(f"no back end is called {only!r}{nearest(only, names)}; there are {', '.join(names)}")
    backends = [examine_apart(name, seconds) if isolate else examine(name) for name in ([only] if only else names)]
    made = {
        "lifetimes": lifetimes.__version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "numpy": np.__version__,
        "platform": platform.platform(),
        "executable": sys.executable,
    }
    extras = {**tables._parts.extras, **policies._parts.extras}
    return Diagnosis(
        versions=made,
        backends=tuple(backends),
        tables=tuple(try_table(name) for name in tables.names()),
        policies=tuple(try_policy(name) for name in policies.names()),
        extras={name: extra for name, extra in extras.items() if name not in (*tables.names(), *policies.names())},
    )


def try_table(name: str) -> PartReport:
    """Three elements in and out."""
    try:
        table = tables.make(name)
        for key in (1, 2, 4):
            table.insert(key, str(key))
        if (table.pop(2), table.get(4), len(table)) != ("2", "4", 2):
            return PartReport(name, False, "it does not give back what was put in")
        ordered = not lacks(table, OrderedTable)
    except Exception as error:  # whatever a factory of somebody else raises
        return PartReport(name, False, one_line(error))
    return PartReport(name, True, note="ordered: serves as address table, too" if ordered else "")


def try_policy(name: str) -> PartReport:
    """Three elements in, all of them proposed."""
    try:
        policy = policies.make(name)
        for key in (1, 2, 4):
            policy.add(key, nbytes=64)
        if sorted(policy.candidates()) != [1, 2, 4]:
            return PartReport(name, False, "it does not propose what was put in")
    except Exception as error:
        return PartReport(name, False, one_line(error))
    return PartReport(name, True)
