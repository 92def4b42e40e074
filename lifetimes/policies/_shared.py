"""What the built-in policies share: the error of a key that is there, and a failed invariant."""

from __future__ import annotations

from lifetimes.errors import InternalError

__all__ = ["held_already", "must"]


def held_already(key: int) -> KeyError:
    """The error of a duplicate `add`."""
    return KeyError(f"the policy holds key {key} already; touch() tells it of a use")


def must(holds: bool, rule: str, state: object) -> None:
    """Raise `InternalError` with the rule that is broken and the state that breaks it."""
    if not holds:
        raise InternalError(f"this must hold: {rule}.  State: {state!r}")
