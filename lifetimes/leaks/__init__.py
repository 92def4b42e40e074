"""Who holds what: the live things of the process, and reports about them."""

from lifetimes.leaks.ledger import LiveThing, live
from lifetimes.leaks.text import report

__all__ = ["LiveThing", "live", "report"]
