"""Which array an address lies in: exact at both ends and for any size, whichever ordered table answers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from random import Random

import pytest

from lifetimes import Manager, tables
from lifetimes.replay.null import NullDriver

MAX = 2**64 - 1


class Scripted(NullDriver):
    """Gives the addresses it was told to."""

    def __init__(self, addresses: Iterator[int]) -> None:
        super().__init__()
        self.addresses = addresses

    def allocate(self, nbytes: int) -> int:
        return next(self.addresses)


def placed(blocks: dict[int, int], name: str) -> tuple[Manager, dict[int, int]]:
    """A manager with arrays at these addresses (address -> size), and their keys by address."""
    manager = Manager(Scripted(iter([at for at, nbytes in blocks.items() if nbytes])), address_table=name)
    keys = {}
    for at, nbytes in blocks.items():
        keys[at] = manager.add(nbytes)
        with manager.use(keys[at], "w") as address:
            assert address == (at if nbytes else 0)
    return manager, keys


@pytest.mark.parametrize("name", tables.names(ordered=True))
def test_the_owner_of_an_inner_address_is_exact_for_any_size(name: str) -> None:
    """Adjacent blocks, a gap, a very large block and one of no size; base + size belongs to the next block or to none.

    Source: stephenrkell/liballocs#59, microsoft/snmalloc#26.
    """
    large = 2**40
    manager, keys = placed({100: 100, 200: 60, 300: 0, 1000: large}, name)
    expected = {
        0: None,
        99: None,
        100: (100, 0),
        199: (100, 99),
        200: (200, 0),
        259: (200, 59),
        260: None,
        300: None,
        999: None,
        1000: (1000, 0),
        1000 + large // 2: (1000, large // 2),
        1000 + large - 1: (1000, large - 1),
        1000 + large: None,
        MAX: None,
    }
    for address, owner in expected.items():
        assert manager.owner_of(address) == (owner and (keys[owner[0]], owner[1])), address
    manager.evict(keys[100])
    assert manager.owner_of(150) is None
    assert manager.owner_of(200) == (keys[200], 0)
    manager.close()


@pytest.mark.parametrize("name", tables.names(ordered=True))
def test_owners_of_random_addresses_are_those_of_a_list(name: str) -> None:
    random = Random(52)
    blocks: dict[int, int] = {}
    at = 256
    for _ in range(2000):
        nbytes = random.choice([0, 1, 255, 256, 257, 4096, 2**20 + 1, 2**33])
        if nbytes:
            blocks[at] = nbytes
        at += -(-nbytes // 256) * 256 + random.choice([0, 0, 256, 2**24])
    manager, keys = placed(blocks, name)
    for base in random.sample(sorted(blocks), 500):
        manager.release(keys.pop(base))
        del blocks[base]
    manager.memory.purge()
    starts = sorted(blocks)
    questions = [random.choice(starts) + random.choice([-1, 0, 1, 255, 256, 4095, 2**20]) for _ in range(5000)]
    questions += [random.randrange(at) for _ in range(5000)]
    owned = 0
    for address in questions:
        below = bisect_right(starts, address)
        base = starts[below - 1] if below else 0
        inside = below and address - base < blocks[base]
        owned += bool(inside)
        assert manager.owner_of(address) == ((keys[base], address - base) if inside else None), address
    assert 1000 < owned < 9000
    manager.close()
