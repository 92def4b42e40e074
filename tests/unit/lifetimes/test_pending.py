"""Work in flight: nothing is released before it, nobody blocks on it, and a failure counts as finished."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

import lifetimes
from lifetimes import CleanupWarning, Lifetime, pending, reaper
from lifetimes.cell import live
from tests.unit.lifetimes.helpers import Task, Ticket, check_quiet


@pytest.fixture
def log() -> list[Any]:
    return []


@pytest.mark.parametrize("how", ["dropped", "closed", "collected"])
def test_released_after_the_work(how: str, log: list[Any]) -> None:
    """JuliaGPU/CUDA.jl#3087: nothing but a copy in flight needs the array; it goes after the copy, once."""
    task, parent = Task(), Lifetime(None, log.append, "parent")
    holder: list[Any] = [Lifetime(None, log.append, "freed", parents=[parent]).after(task)]
    if how == "closed":
        holder[0].close()
        assert holder[0].closed
    elif how == "collected":
        holder.append(holder)
    del holder, parent
    gc.collect()
    for _ in range(3):
        lifetimes.drain()
        assert log == []
    task.finished = True
    lifetimes.drain()
    assert log == ["freed", "parent"]


def test_a_live_lifetime_is_not_asked_about_its_work() -> None:
    task = Task()
    lifetime = Lifetime(None).after(task)
    lifetimes.drain()
    assert task.asked == 0
    task.finished = True
    lifetime.close()


def test_a_safe_point_asks_the_oldest_of_each_stream(log: list[Any]) -> None:
    """Work of one stream completes in order, so one question a stream is enough."""
    tickets = [[Ticket(stream, number) for number in range(50)] for stream in range(3)]
    for stream in tickets:
        for ticket in stream:
            Lifetime(None, log.append, (ticket.stream_key, ticket.sequence)).after(ticket)
    for stream in tickets:
        for ticket in stream:
            ticket.asked = 0
    lifetimes.drain()
    assert [sum(ticket.asked for ticket in stream) for stream in tickets] == [1, 1, 1]
    for ticket in tickets[1][:20]:
        ticket.finished = True
    lifetimes.drain()
    assert log == [(1, number) for number in range(20)]
    for stream in tickets:
        for ticket in stream:
            ticket.finished = True
    lifetimes.drain()
    assert sorted(log) == [(stream, number) for stream in range(3) for number in range(50)]
    assert not pending.waiting()


def test_a_safe_point_asks_at_most_so_many_tasks_without_a_stream() -> None:
    tasks = [Task() for _ in range(1000)]
    for task in tasks:
        Lifetime(None).after(task)
    lifetimes.drain()
    for task in tasks:
        task.asked = 0
    reaper.safepoint()
    assert sum(task.asked for task in tasks) == pending.LOOSE_LIMIT
    for task in tasks:
        task.finished = True
    before = len(live)
    assert lifetimes.drain() == before  # all of them: it has time
    assert not pending.waiting()


def test_a_program_without_safe_points_does_not_gather_finished_work() -> None:
    """It only makes, uses and drops: a drop of something with work in flight looks for what has finished."""
    before, most, tasks = len(live), 0, list[Task]()
    for _ in range(500):
        tasks.append(Task())
        Lifetime(None).after(tasks[-1])
        if len(tasks) > 3:
            tasks.pop(0).finished = True
        most = max(most, len(live) - before)
    assert most < 10
    for task in tasks:
        task.finished = True
    lifetimes.drain()


def test_a_lifetime_that_lives_long_does_not_gather_finished_work() -> None:
    lifetime = Lifetime(None)
    for _ in range(1000):
        lifetime.after(Task(finished=True))
    assert len(lifetime._cell.holders) < 20
    lifetime.close()


def test_work_that_failed_is_finished_and_told_once(log: list[Any]) -> None:
    lifetime = Lifetime(None, log.append, "freed", label="x").after(Task(error=OSError("lost device")))
    with pytest.warns(
        CleanupWarning, match=r"work that object 'x' #\d+ was waiting for failed: OSError: lost device"
    ) as told:
        del lifetime
    assert log == ["freed"]
    assert len(told) == 1


def test_all_work_has_to_finish(log: list[Any]) -> None:
    tasks = [Task(), Task(), Task()]
    lifetime = Lifetime(None, log.append, "freed")
    for task in tasks:
        lifetime.after(task)
    del lifetime
    for task in (tasks[1], tasks[0], tasks[2]):
        assert log == []
        task.finished = True
        lifetimes.drain()
    assert log == ["freed"]


def test_close_without_waiting_leaves_it_and_its_ancestors_closing(log: list[Any]) -> None:
    root = Lifetime(None, log.append, "root")
    busy = Lifetime(None, log.append, "busy", parents=[root])
    idle = Lifetime(None, log.append, "idle", parents=[root])
    task = Task()
    busy.after(task)
    root.close()
    assert log == ["idle"]
    assert root.closed
    assert busy.closed
    assert idle.closed
    assert "closing" in repr(root)
    with pytest.raises(lifetimes.ClosedError, match="closing"):
        busy.use()
    task.finished = True
    lifetimes.drain()
    assert log == ["idle", "busy", "root"]


class Waited(Task):
    def wait(self) -> None:
        if self.error is not None:
            raise self.error
        self.finished = True


@pytest.mark.parametrize("error", [None, OSError("lost device")])
def test_close_waiting_waits_for_all_of_it(error: Exception | None, log: list[Any]) -> None:
    root = Lifetime(None, log.append, "root")
    child = Lifetime(None, log.append, "child", parents=[root]).after(Waited(error=error))
    root.after(Waited())
    if error is None:
        root.close(wait=True)
    else:
        with pytest.warns(CleanupWarning, match="lost device"):
            root.close(wait=True)
    assert log == ["child", "root"]
    assert child.closed


def test_close_waiting_asks_again_what_cannot_be_waited_for(log: list[Any]) -> None:
    class Slow(Task):
        def completed(self) -> bool:
            self.finished = self.asked > 3
            return super().completed()

    lifetime = Lifetime(None, log.append, "freed").after(Slow())
    lifetime.close(wait=True)
    assert log == ["freed"]


def test_an_export_keeps_it_closing_until_the_consumer_lets_go(log: list[Any]) -> None:
    """numpy/numpy#22507: a deleter called from a foreign thread, once."""
    root = Lifetime(None, log.append, "root")
    lifetime = Lifetime("value", log.append, "freed", parents=[root])
    export = lifetime.export("to C")
    assert export.value == "value"
    root.close()
    assert lifetime.closed
    del lifetime
    gc.collect()
    lifetimes.drain()
    assert log == []
    thread = threading.Thread(target=export.release)
    thread.start()
    thread.join()
    assert log == ["freed", "root"]
    export.release()
    assert log == ["freed", "root"]


def test_an_export_that_nobody_takes_ends_with_it(log: list[Any]) -> None:
    """numpy/numpy#22507: a capsule that is never consumed still frees."""
    lifetime = Lifetime("value", log.append, "freed")
    export = lifetime.export()
    del lifetime
    assert log == []
    del export
    assert log == ["freed"]


def test_several_exports_of_one_value(log: list[Any]) -> None:
    lifetime = Lifetime("value", log.append, "freed")
    exports = [lifetime.export(str(number)) for number in range(3)]
    lifetime.close()
    for export in exports:
        assert log == []
        export.release()
    assert log == ["freed"]


def test_detached_with_work_in_flight(log: list[Any]) -> None:
    """The value is given up: whoever takes it sees to the work."""
    lifetime = Lifetime("value", log.append, "freed").after(Task())
    assert lifetime.detach() == "value"
    lifetimes.drain()
    assert log == []


def test_a_task_that_drops_and_drains_when_it_is_asked(log: list[Any]) -> None:
    class Busy(Task):
        def completed(self) -> bool:
            Lifetime(None, log.append, "dropped while polling")
            lifetimes.drain()
            return super().completed()

    tasks = [Busy(), Busy()]
    for number, task in enumerate(tasks):
        Lifetime(None, log.append, number).after(task)
    lifetimes.drain()
    for task in tasks:
        task.finished = True
    lifetimes.drain()
    assert {0, 1} <= set(log)
    check_quiet()


def test_a_task_whose_stream_cannot_be_read_is_asked_in_turn(log: list[Any]) -> None:
    class Odd(Task):
        @property
        def stream_key(self) -> int:
            raise RuntimeError("no stream")

    task = Odd()
    Lifetime(None, log.append, "freed").after(task)
    lifetimes.drain()
    task.finished = True
    lifetimes.drain()
    assert log == ["freed"]
