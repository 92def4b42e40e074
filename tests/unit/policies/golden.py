"""Miss counts of each policy, recorded once: ``python -m tests.unit.policies.golden`` writes ``golden.json`` anew.

They come from libCacheSim where it has the same algorithm, else from the naive model.  What differs between the two:

- ``gdsf``: libCacheSim puts the key that comes in among the others before it looks for a victim, so a key may be refused.
  Here it cannot be, because its memory is what is being looked for.
- ``random``: draws differ.
- ``s3fifo``: libCacheSim knows the capacity; here it is told for the comparison, and is the bytes held otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any, Final

from lifetimes.replay.simulate import next_uses
from tests.unit.policies.naive import GDSF, MODELS, S3FIFO, Model
from tests.unit.policies.traces import TRACES, Uses

FILE: Final = Path(__file__).with_name("golden.json")
PEERS: Final = {"lru": "LRU", "clock": "Clock", "sieve": "Sieve", "s3fifo": "S3FIFO", "belady": "Belady"}
"""Policies whose definition is libCacheSim's, and its class."""
REFUSING: Final = "gdsf that may refuse"
LARGE: Final = 10_000
"""Uses from which on a naive model takes too long, unless little is held."""
LITTLE: Final = 64 << 20


def read() -> dict[str, dict[str, dict[str, int]]]:
    """trace -> limit -> policy -> misses."""
    found: dict[str, dict[str, dict[str, int]]] = json.loads(FILE.read_text())
    return found


def peer_misses(peer: str, uses: Uses, limit: int) -> int:
    """What libCacheSim counts."""
    library: Any = import_module("libcachesim")
    cache = getattr(library, peer)(limit, hashpower=17)
    get, request = library.ReqOp.OP_GET, library.Request
    future = next_uses(uses.keys, uses.sizes)
    misses = 0
    for time, (key, nbytes) in enumerate(zip(uses.keys, uses.sizes, strict=True)):
        asked = request(obj_id=key, obj_size=nbytes, clock_time=time, op=get)
        asked.next_access_vtime = 2**63 - 1 if future[time] == inf else int(future[time])
        misses += not cache.get(asked)
    return misses


def model_misses(model: Model, uses: Uses, limit: int) -> int:
    """What a naive model counts."""
    held: dict[int, int] = {}
    future = next_uses(uses.keys, uses.sizes)
    misses = 0
    refuses = isinstance(model, GDSF) and model.refuses
    for position, (key, nbytes) in enumerate(zip(uses.keys, uses.sizes, strict=True)):
        model.next_use = future[position]
        if key in held:
            model.touch(key)
            continue
        misses += 1
        if refuses:
            held[key] = nbytes
            model.add(key, nbytes)
        if sum(held.values()) + (0 if refuses else nbytes) > limit:
            model.short()
            while sum(held.values()) + (0 if refuses else nbytes) > limit:
                del held[model.evict()]
        if not refuses:
            held[key] = nbytes
            model.add(key, nbytes)
    return misses


def model_of(name: str, limit: int) -> Callable[[], Model]:
    """The model to compare with, told what libCacheSim is told."""
    return (lambda: S3FIFO(limit)) if name == "s3fifo" else MODELS[name]


def record() -> None:
    """Write the file."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for trace, make in TRACES.items():
        uses = make()
        for limit in uses.limits:
            row = {name: peer_misses(peer, uses, limit) for name, peer in [*PEERS.items(), (REFUSING, "GDSF")]}
            if len(uses.keys) < LARGE or limit <= LITTLE:
                others = [name for name in MODELS if name not in PEERS]
                row |= {name: model_misses(model_of(name, limit)(), uses, limit) for name in others}
            found.setdefault(trace, {})[str(limit)] = row
            print(trace, limit, row)
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    record()
