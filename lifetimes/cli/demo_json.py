"""The demo's outcome as JSON: plain names, sizes in bytes, times in seconds."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from lifetimes.cli.demo_outcome import Outcome

__all__ = ["as_json"]


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The summary as what `json.dumps` takes."""
    cut, statistics, results = outcome.plan, outcome.statistics, outcome.results
    return {
        "good": outcome.good,
        "options": outcome.options,
        "data": {
            "source": outcome.source,
            "rows": cut.rows,
            "columns": cut.columns,
            "bytes": cut.data_bytes,
            "chunks": len(cut.starts),
            "chunk_bytes": cut.chunk_bytes,
        },
        "limit_bytes": cut.limit,
        "within_limit": outcome.within_limit,
        "compiled": not outcome.why_not_compiled,
        "why_not_compiled": outcome.why_not_compiled,
        "passes": outcome.passes,
        "lookup_share": outcome.lookup_share,
        "statistics": None if statistics is None else asdict(statistics),
        "eigenvalues": [] if results is None else [number(value) for value in results.eigenvalues],
        "settled_to": [] if results is None else [number(residual) for residual in results.residuals],
        "errors": [
            {"what": row.what, "error": number(row.error), "tolerance": row.tolerance, "good": row.good}
            for row in outcome.errors
        ],
        "leaks": [asdict(leak) | {"made_by": leak.made_by} for leak in outcome.leaks],
        "leak_mended": outcome.mended,
        "left_alive": [asdict(thing) for thing in outcome.left],
        "seconds": outcome.seconds,
    }


def number(value: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else None
