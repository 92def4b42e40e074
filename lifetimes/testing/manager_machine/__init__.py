"""A random program against a memory manager on a simulated device, with plain arrays as the oracle.

    class MyMachine(ManagerMachine):
        policy = "my_package.policy:MyPolicy"

    TestMyMachine = MyMachine.TestCase

Needs Hypothesis, which is why the package does not import it by itself.
"""

from __future__ import annotations

from lifetimes.testing.manager_machine.trouble import Trouble

__all__ = ["ManagerMachine"]


class ManagerMachine(Trouble):
    """Reads, writes, evictions, prefetches, releases, adoptions, limits, time, faults, interrupts.

    The model knows what each array must contain once all work has completed: some bytes, anything (``None``), or nothing
    any more (`lost`), which its next reading must say.  After each step the books are recounted and the content of every
    array is looked at: what is on the host and on disk always, what is on the device where ``settled`` says so.
    """
