"""Each policy once more, slow and obvious: lists that are searched from end to end, as its paper tells it.

A model is told of a shortage (`short`), after which it names victims (`evict`); a victim is gone for it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Final


@dataclass
class Key:
    number: int
    nbytes: int
    cost: float = 1.0
    uses: int = 0
    used_at: int = 0
    next_use: float = inf
    rank: float = 0.0


class Model:
    """What is common: the held keys in order of arrival, and a clock that counts uses."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.now = 0
        self.next_use = inf  # Belady's future

    def find(self, number: int) -> Key:
        return next(key for key in self.keys if key.number == number)

    def add(self, number: int, nbytes: int, cost: float = 1.0) -> None:
        self.now += 1
        self.keys.append(Key(number, nbytes, cost, used_at=self.now, next_use=self.next_use))

    def touch(self, number: int) -> None:
        self.now += 1
        key = self.find(number)
        key.uses += 1
        key.used_at = self.now
        key.next_use = self.next_use

    def remove(self, number: int) -> None:
        self.keys.remove(self.find(number))

    def short(self) -> None:
        """Memory is short; victims will be asked for."""

    def evict(self) -> int:
        victim = self.victim()
        self.remove(victim.number)
        return victim.number

    def victim(self) -> Key:
        raise NotImplementedError


class LRU(Model):
    def victim(self) -> Key:
        return min(self.keys, key=lambda key: key.used_at)


class Clock(Model):
    def victim(self) -> Key:
        while self.keys[0].uses:
            spared = self.keys.pop(0)
            spared.uses = 0
            self.keys.append(spared)
        return self.keys[0]


class Sieve(Model):
    def __init__(self) -> None:
        super().__init__()
        self.hand = 0  # the place of the key that is looked at next

    def remove(self, number: int) -> None:
        place = self.keys.index(self.find(number))
        del self.keys[place]
        if place < self.hand:
            self.hand -= 1
        if self.hand == len(self.keys):
            self.hand = 0

    def victim(self) -> Key:
        while self.keys[self.hand].uses:
            self.keys[self.hand].uses = 0
            self.hand = (self.hand + 1) % len(self.keys)
        return self.keys[self.hand]


class S3FIFO(Model):
    """Here ``keys`` are those of the small queue."""

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__()
        self.capacity = capacity
        self.main: list[Key] = []
        self.ghosts: list[Key] = []
        self.total = 0
        self.filling = True

    def find(self, number: int) -> Key:
        return next(key for key in [*self.keys, *self.main] if key.number == number)

    def add(self, number: int, nbytes: int, cost: float = 1.0) -> None:
        key = Key(number, nbytes)
        remembered = number in [ghost.number for ghost in self.ghosts]
        self.ghosts = [ghost for ghost in self.ghosts if ghost.number != number]
        while sum(ghost.nbytes for ghost in self.ghosts) > int(0.9 * self.total):
            self.ghosts.pop(0)
        (self.main if remembered else self.keys).append(key)

    def remove(self, number: int) -> None:
        key = self.find(number)
        (self.keys if key in self.keys else self.main).remove(key)

    def short(self) -> None:
        self.total = self.capacity or sum(key.nbytes for key in [*self.keys, *self.main])
        if self.filling and self.keys:
            came, small = 0, []
            for key in self.keys:
                if came < int(0.1 * self.total):
                    small.append(key)
                    came += key.nbytes
            self.main += [key for key in self.keys if key not in small]
            self.keys = small
            self.filling = False

    def evict(self) -> int:
        while True:
            if not self.keys or sum(key.nbytes for key in self.main) > self.total - int(0.1 * self.total):
                while True:
                    key = self.main.pop(0)
                    if not key.uses:
                        return key.number
                    key.uses = min(key.uses, 3) - 1
                    self.main.append(key)
            while self.keys:
                key = self.keys.pop(0)
                if key.uses < 2:
                    self.ghosts.append(key)
                    return key.number
                key.uses = 0
                self.main.append(key)


class GDSF(Model):
    """``refuses``: the key that comes in may be its own victim, as libCacheSim has it."""

    def __init__(self, refuses: bool = False) -> None:
        super().__init__()
        self.age = 0.0
        self.refuses = refuses

    def add(self, number: int, nbytes: int, cost: float = 1.0) -> None:
        super().add(number, nbytes, cost)
        self.rank(number)

    def touch(self, number: int) -> None:
        super().touch(number)
        self.rank(number)

    def rank(self, number: int) -> None:
        key = self.find(number)
        key.rank = self.age + (key.uses + 1) * key.cost / key.nbytes

    def victim(self) -> Key:
        return min(self.keys, key=lambda key: (key.rank, key.used_at))

    def evict(self) -> int:
        self.age = self.victim().rank
        return super().evict()


class Belady(Model):
    def victim(self) -> Key:
        return min(self.keys, key=lambda key: (-key.next_use, key.used_at))


class AnyKey(Model):
    """The same draws as the policy's: from the held keys, the last of which fills each gap."""

    def __init__(self) -> None:
        super().__init__()
        self.random = Random(0)

    def remove(self, number: int) -> None:
        place = self.keys.index(self.find(number))
        self.keys[place] = self.keys[-1]
        self.keys.pop()

    def victim(self) -> Key:
        return self.random.choice(self.keys)


MODELS: Final[dict[str, Callable[[], Model]]] = {
    "lru": LRU,
    "clock": Clock,
    "sieve": Sieve,
    "s3fifo": S3FIFO,
    "gdsf": GDSF,
    "random": AnyKey,
    "belady": Belady,
}
"""The model of each registered policy."""
