"""Benchmarks: each row sets ours against a peer in one process, with a bar.

``make bench`` runs all of them, ``make bench BENCH=lifetime`` the rows of ``bench_lifetime.py``.  How it is measured,
and how to add a row, stands in ``docs/explanation/measuring.md``.
"""
