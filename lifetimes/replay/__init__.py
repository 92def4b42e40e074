"""Replaying recorded traces: `trace` reads them, `play` does what they say under a limit, `simulate` asks a policy alone.

`null` is a device that moves nothing, for measuring the manager; `plot` draws what came out.
"""
