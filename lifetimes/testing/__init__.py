"""For tests of lifetimes and of what is built on it: a simulated back end, planned faults, conformance suites.

Nothing in the library imports this package.  `sim` needs nothing beside NumPy; `conformance` needs pytest.
"""
