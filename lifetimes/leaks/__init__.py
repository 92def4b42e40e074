"""Who holds what: the live things of the process, why they are alive, how it came to that, and reports about them.

`ledger` has the rows of what is alive, `snapshots` all of it in columns, `comparison` what changed between two; `filters`
picks and groups.  `reasons` follows references back to a root (`search`, `roots`, `paths`).  `history` records bytes over
time into a `recording`.  `reports` puts these together for `text`, `document` (JSON), `page` (HTML), `chrome` (Perfetto);
`rmm` logs allocations.  `environment` reports at exit or on a signal; `pytest_plugin` checks tests; `program` runs a program
with its `exit_handlers` and judges it; both let things come to rest first (`settling`, `tracebacks`).  `tracking` follows
other libraries, `below` warns of what is under something that is about to be closed.
"""

from lifetimes.leaks.below import warn_below
from lifetimes.leaks.comparison import Difference, diff
from lifetimes.leaks.filters import Group, group
from lifetimes.leaks.history import History
from lifetimes.leaks.ledger import LiveThing, live
from lifetimes.leaks.reasons import Reason, why
from lifetimes.leaks.reports import Report, collect
from lifetimes.leaks.snapshots import Snapshot, snapshot
from lifetimes.leaks.text import report

__all__ = [
    "Difference",
    "Group",
    "History",
    "LiveThing",
    "Reason",
    "Report",
    "Snapshot",
    "collect",
    "diff",
    "group",
    "live",
    "report",
    "snapshot",
    "warn_below",
    "why",
]
