"""An array is broken exactly when a write that its content depends on has failed, and says so at its next use."""

from __future__ import annotations

import numpy as np
import pytest

from lifetimes.errors import BackendError, BrokenError, CleanupWarning
from lifetimes.timeline import MANY
from tests.unit.memory.scene import SIZE, Gate, Scene, Thread


def broken(scene: Scene, key: int) -> bool:
    """Whether reading it is refused."""
    try:
        scene.value(key)
    except BrokenError as error:
        return "planned" in str(error)
    return False


def test_the_array_that_the_failed_work_wrote_is_broken_and_no_other() -> None:
    scene = Scene()
    before, wrong, after = scene.adds(3)
    scene.write(before, 10)
    scene.fail(wrong)
    scene.write(after, 20)
    assert [broken(scene, key) for key in (before, wrong, after)] == [False, True, False]
    assert (scene.value(before), scene.value(after)) == (10, 20)
    with pytest.raises(BrokenError, match='mode "w"'), scene.manager.use(wrong, "rw"):
        pass
    assert scene.manager.statistics().broken == 1
    scene.close()


def test_a_failed_work_that_only_read_breaks_nothing() -> None:
    scene = Scene()
    key = scene.add(1)
    with scene.manager.use(key) as address:
        scene.manager.stream.fence()
        scene.driver.faults.fail("copy_out", at="completion")
        scene.driver.copy_out(np.empty(SIZE, np.uint8), address, scene.manager.stream.handle)
    scene.manager.stream.mark()
    scene.write(key, 2)
    assert scene.value(key) == 2
    scene.close()


def test_overwriting_all_of_it_mends_it() -> None:
    for mend_after in ("being told", "nobody knows"):
        scene = Scene()
        key = scene.add(1)
        scene.fail(key)
        if mend_after == "being told":
            assert broken(scene, key)
        scene.write(key, 5, "w")
        assert scene.value(key) == 5
        scene.write(key, 6)
        assert scene.manager.evict(key)
        assert scene.value(key) == 6
        scene.close()


def test_an_update_after_a_failed_write_does_not_hide_it() -> None:
    """The failure becomes known only when both have been enqueued."""
    scene = Scene()
    key = scene.add(1)
    scene.fail(key)
    for value in range(2, 80):
        scene.write(key, value)
    assert broken(scene, key)
    scene.close()


def test_an_update_on_another_stream_does_not_hide_it_either() -> None:
    scene = Scene()
    key, stream = scene.add(1), scene.stream()
    scene.fail(key)
    scene.write(key, 3, stream=stream)
    assert broken(scene, key)
    scene.close()


def test_what_is_known_to_be_fine_is_forgotten() -> None:
    scene = Scene()
    key = scene.add(1)
    for value in range(500):
        scene.write(key, value % 100)
        scene.driver.run_until_idle()
    assert len(scene.entry(key).earlier) < 130
    assert scene.value(key) == 499 % 100
    scene.close()


def test_a_failure_on_the_stream_of_another_array_costs_no_more_than_a_look() -> None:
    scene = Scene()
    good, wrong = scene.adds(2)
    scene.write(good, 4)
    scene.fail(wrong)
    assert broken(scene, wrong)
    hits = scene.manager.statistics().hits
    scene.touch(good, good)
    assert scene.manager.statistics().hits == hits + 2
    assert scene.value(good) == 4
    scene.close()


def test_an_evicted_copy_of_what_a_failed_write_left_is_worth_nothing() -> None:
    scene = Scene()
    key = scene.add(1)
    scene.fail(key)
    assert scene.manager.evict(key)
    assert broken(scene, key)
    assert scene.manager.statistics().resident == 0
    scene.check()
    scene.write(key, 7, "w")
    assert scene.value(key) == 7
    scene.close()


def test_a_reader_that_cancels_the_eviction_does_not_make_it_good() -> None:
    scene = Scene(manual=True)
    key = scene.add(1)
    scene.fail(key)
    with pytest.raises(RuntimeError, match="step"):
        scene.manager.evict(key)
    scene.touch(key)
    scene.driver.run_until_idle()
    scene.driver.manual = False
    assert broken(scene, key)
    scene.close()


def test_an_upload_that_fails_on_its_way_is_made_again() -> None:
    scene = Scene()
    key = scene.add(1)
    scene.driver.faults.fail("copy_in", at="completion")
    scene.touch(key)
    scene.driver.run_until_idle()
    assert scene.on_device(key) == 1, "the host has the content still"
    assert scene.driver.counts["copy_in"] == 2
    assert scene.value(key) == 1
    scene.close()


def test_an_upload_that_fails_breaks_nothing_that_was_written_before_or_after_it() -> None:
    scene = Scene()
    before, uploaded, after = scene.adds(3)
    scene.write(before, 10)
    scene.driver.faults.fail("copy_in", at="completion")
    scene.touch(uploaded)
    scene.write(after, 20, "w")
    assert [scene.value(key) for key in (before, uploaded, after)] == [10, 2, 20]
    assert scene.on_device(uploaded) == 2
    scene.close()


def test_what_was_computed_from_a_failed_upload_is_broken() -> None:
    scene = Scene()
    key = scene.add(1)
    scene.driver.faults.fail("copy_in", at="completion")
    scene.write(key, 5)
    scene.write(key, 6)
    assert broken(scene, key)
    scene.close()


def test_a_failed_upload_of_an_array_in_use_is_told_and_made_again_later() -> None:
    scene = Scene()
    key = scene.add(1)
    scene.driver.faults.fail("copy_in", at="completion")
    with scene.manager.use(key):
        scene.driver.run_until_idle()
        with pytest.raises(BackendError, match="in use"), scene.manager.use(key, "rw"):
            pass
    assert scene.on_device(key) == 1
    scene.close()


def test_a_read_whose_copy_fails_is_an_error_and_the_next_one_works() -> None:
    for at in ("call", "completion"):
        scene = Scene()
        key = scene.add(1)
        scene.write(key, 2)
        scene.driver.faults.fail("copy_out", at=at)
        with pytest.raises(BackendError, match="planned"):
            scene.value(key)
        assert scene.value(key) == 2
        scene.close()


def test_a_write_from_the_host_that_fails_breaks_the_array() -> None:
    scene = Scene()
    key = scene.add(1)
    scene.driver.faults.fail("copy_in", at="completion")
    with pytest.raises(BackendError, match="planned"):
        scene.manager.write(key, np.full(SIZE, 2, np.uint8))
    assert broken(scene, key)
    scene.manager.write(key, np.full(SIZE, 3, np.uint8))
    assert scene.value(key) == 3
    scene.close()


def test_work_enqueued_by_an_open_use_is_not_lost_between_two_events() -> None:
    """Somebody has an event recorded on the stream while the block is still open; the work before it fails."""
    scene = Scene()
    key, other, stream = scene.add(1), scene.add(2), scene.stream()
    scene.write(other, 5)
    with scene.manager.use(key, "rw") as address:
        scene.driver.faults.fail("call", at="completion")
        scene.fill(address, 9)
        with scene.manager.use(other, "r", stream):  # waits for the manager's stream: an event stands behind our kernel
            pass
        assert scene.driver.counts["record"] >= 1
    assert broken(scene, key)
    scene.close()


@pytest.mark.parametrize("evict", [False, True])
def test_a_failure_is_not_missed_while_another_thread_records_an_event_on_that_stream(evict: bool) -> None:
    """Only the events before it can tell whether it failed, and one of them is not there yet."""
    scene, gate = Scene(), Gate()
    key, stream = scene.add(1), scene.stream()
    scene.write(key, 5, stream=stream)
    scene.driver.run_until_idle()
    for _ in range(2):  # the first one sees that the upload went well
        with scene.manager.use(key, "r", stream):
            pass
    with scene.manager.use(key, "rw", stream) as address:  # a short one, which has no event recorded behind it
        scene.driver.faults.fail("call", at="completion")
        scene.fill(address, 9, stream)
    scene.driver.faults.before("record", 1, gate.stop)
    recorder = Thread(stream.mark)
    gate.wait()

    def read() -> bool:
        if evict:
            scene.manager.evict(key)
        return broken(scene, key)

    reader = Thread(read)
    reader._thread.join(0.1)
    gate.open()
    assert reader.join()
    recorder.join()
    scene.close()


def test_readers_on_streams_that_come_and_go_are_not_remembered_for_ever() -> None:
    scene = Scene()
    key = scene.add(1)
    for _ in range(5 * MANY):
        stream = scene.stream(borrowed=True)
        with scene.manager.use(key, "r", stream):
            pass
        scene.driver.run_until_idle()
    assert len(scene.entry(key).reads) <= 2 * MANY
    scene.write(key, 2)
    assert scene.value(key) == 2
    scene.close()


def test_broken_arrays_can_be_evicted_released_and_are_never_copied() -> None:
    scene = Scene(blocks=2)
    a, b = scene.adds(2)
    for key in (a, b):
        scene.fail(key)
    assert broken(scene, a)
    assert broken(scene, b)
    copies = scene.driver.counts["copy_out"]
    scene.touch(*scene.adds(2, first=50))
    assert scene.driver.counts["copy_out"] == copies
    scene.manager.release(a)
    scene.check()
    scene.close()


def test_a_copy_back_that_fails_says_so_and_keeps_the_array() -> None:
    for at in ("call", "completion"):
        scene = Scene()
        key = scene.add(1)
        scene.write(key, 2)
        scene.driver.faults.fail("copy_out", at=at)
        with pytest.warns(CleanupWarning, match="stays on the device"):
            assert not scene.manager.evict(key)
        assert scene.entry(key).block is not None
        assert scene.value(key) == 2
        assert scene.manager.evict(key)
        scene.close()


def test_a_landing_place_is_not_given_away_while_a_copy_lands_in_it() -> None:
    """A reader learns that the array is broken while another thread is just enqueueing its copy-back."""
    scene, waiting, copying = Scene(), Gate(), Gate()
    key = scene.add(1)
    scene.write(key, 2)
    assert scene.manager.evict(key)
    scene.write(key, 3)
    landing = scene.entry(key).host
    assert landing is not None, "kept warm"
    scene.fail(key)
    scene.driver.faults.before("wait", 1, waiting.stop)
    reader = Thread(broken, scene, key)
    waiting.wait()
    scene.driver.faults.before("copy_out", 1, copying.stop)
    evictor = Thread(scene.manager.evict, key)
    copying.wait()
    waiting.open()
    reader._thread.join(0.1)
    assert not np.shares_memory(scene.manager.host_store.take(SIZE), landing)
    copying.open()
    evictor.join()
    assert reader.join()
    assert broken(scene, key)
    scene.close()
