"""The end of the process and forks, with real resources: silent, in order, and nobody frees what is another's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parent.parent.parent
HEAD = """
import atexit, builtins, gc, os, signal, sys, threading

class Log:  # registered before lifetimes is imported, so it looks at what its exit hook has done
    parents, kinds, released = {}, {}, []
    def __call__(self, name, key, details):
        if name == "create":
            self.parents[key] = [parent.key for parent in details["cell"].parents]
            self.kinds[key] = details["cell"].kind
        elif name == "release":
            self.released.append(key)
    def tell(self):
        at = {key: place for place, key in enumerate(self.released)}
        wrong = [key for key in at for parent in self.parents[key] if at.get(parent, len(at)) < at[key]]
        kept = sorted({self.kinds[key] for key in self.parents if key not in at})
        print("wrong:", wrong, "twice:", len(self.released) - len(at), "kept:", kept, flush=True)

log, main = Log(), os.getpid()
if __name__ == "__main__":
    atexit.register(lambda: log.tell() if os.getpid() == main else None)

import numpy as np
import lifetimes
from lifetimes import instrument
instrument.subscribe(log)

class Knot:
    pass

def make(gate=None):
    device = lifetimes.open("host", memory_limit="8MiB")
    stream = device.create_stream()
    arrays = [device.asarray(np.arange(100_000.0)) for _ in range(5)]
    views = [array[::2] for array in arrays]
    for view in views:
        device.call(np.negative, view, view, modes="ru", stream=stream)
    if gate is not None:
        device.call(gate, stream=stream)
    event = stream.record()
    owned = lifetimes.Lifetime("x", kind="user", parents=[arrays[0]])
    return [device, stream, event, owned, *arrays, *views]
"""
NOTHING_LEFT = "wrong: [] twice: 0 kept: []\n"


def run(script: str, head: str = HEAD) -> subprocess.CompletedProcess[str]:
    """A process of its own, everything that it could complain about turned on."""
    ignored = "ignore::DeprecationWarning:__main__"  # CPython's own, about forking with threads
    command = [sys.executable, "-X", "dev", "-W", "error", "-W", ignored, "-c", head + dedent(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)


ENDS = {
    "held by everything": """
        things = make()
        builtins.things, sys.modules["kept"] = make(), make()
        in_closure = make(); atexit.register(lambda: in_closure)
        def f(kept=make()): pass
        local = threading.local(); local.things = make()
        knot = Knot(); knot.me, knot.things = knot, make(); del knot
        closed = make(); closed[0].close()
        shared = lifetimes.current_device().zeros(100_000)
        with lifetimes.defer(): make()
        """,
    "frozen": "knot = Knot(); knot.me, knot.things = knot, make(); del knot; gc.freeze(); gc.disable()",
    "generator": "def g():\n    things = make()\n    with things[0].use(read=things[4:6]): yield\nlive = g(); next(live)",
    "inside a block": "things = make()\nwith things[0]: sys.exit(0)",
    "safe points only": "lifetimes.set_release_mode('safepoint'); things = make(); del things",
    "simulated": "things = lifetimes.open('sim').zeros(10)[2:]",
}


@pytest.fixture(scope="module")
def ended(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[subprocess.CompletedProcess[str]]]]:
    """The processes of the test below, all at once: they spend their time on starting."""
    wanted = [str(item.callspec.params["end"]) for item in request.session.items
              if isinstance(item, pytest.Function) and item.function is test_the_end_of_the_process]  # fmt: skip
    with ThreadPoolExecutor(4) as pool:
        yield {end: pool.submit(run, ENDS[end]) for end in wanted}


@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_the_process(end: str, ended: dict[str, Future[subprocess.CompletedProcess[str]]]) -> None:
    """No clean-up by the user, whoever holds what.  BUG-065 (inducer/pycuda#74), BUG-011 (JuliaGPU/OpenCL.jl#279)."""
    result = ended[end].result()
    assert (result.returncode, result.stderr) == (0, "")
    kept = NOTHING_LEFT
    if end == "generator":  # suspended inside a use: what is in use is never freed, nor what it needs
        kept = "wrong: [] twice: 0 kept: ['array', 'context', 'device', 'stream']\n"
    assert result.stdout == kept


def test_an_exception() -> None:
    result = run("things = make()\nraise ValueError('the end')")
    assert result.returncode == 1
    assert result.stderr.rstrip().endswith("ValueError: the end")
    assert "lifetimes" not in result.stderr.replace("lifetimes.open", "")
    assert result.stdout == NOTHING_LEFT


def test_sys_exit_in_a_thread() -> None:
    result = run(
        """
        things = make()
        thread = threading.Thread(target=lambda: (make(), sys.exit(3)))
        thread.start()
        thread.join()
        """
    )
    assert (result.returncode, result.stderr, result.stdout) == (0, "", NOTHING_LEFT)


def test_a_daemon_thread_that_goes_on() -> None:
    result = run(
        """
        things, started = make(), threading.Event()
        def go_on():
            device = things[0]
            while True:
                try:
                    device.asarray(np.arange(3.0)).numpy()
                except lifetimes.ClosedError:
                    return
                started.set()
        threading.Thread(target=go_on, daemon=True).start()
        started.wait(20)
        """
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("wrong: [] twice: 0 ")


def test_a_signal_ends_it() -> None:
    """BUG-065: with the default handling there is no clean-up, and nothing hangs."""
    result = run("things = make(); os.kill(os.getpid(), signal.SIGTERM)")
    assert (result.returncode, result.stderr, result.stdout) == (-signal.SIGTERM, "", "")


def test_work_in_flight_is_waited_for() -> None:
    result = run(
        """
        gate = threading.Event()
        things = make(lambda: (gate.wait(20), print("the work ended", flush=True)))
        threading.Timer(0.05, gate.set).start()
        """
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "the work ended\n" + NOTHING_LEFT


def test_work_that_does_not_end_is_left_with_one_warning() -> None:
    """The end of the process does not wait for ever, and does not free under the work."""
    result = run(
        """
        import warnings
        from lifetimes import shutdown
        warnings.simplefilter("default", lifetimes.CleanupWarning)
        shutdown.PENDING_LIMIT = 0.1
        gate = threading.Event()
        things = make(gate.wait)
        """
    )
    assert result.returncode == 0
    assert result.stderr.count("CleanupWarning") == 1
    assert "did not finish within 0.1 s at exit" in result.stderr
    assert "device 'host:0'" in result.stderr
    assert result.stdout == "wrong: [] twice: 0 kept: ['context', 'device', 'stream']\n"


@pytest.mark.parametrize("hold", ["export = things[4].export()", "export = things[-1].export()"])
def test_what_is_exported_is_not_freed(hold: str) -> None:
    """BUG-035 (numpy/numpy#22507): after the end it leaks rather than crashes; released late it does nothing."""
    result = run(f"things = make()\n{hold}\natexit.register(lambda: None)")
    assert (result.returncode, result.stderr) == (0, "")
    kept = ["array", "context", "device", "stream"] + (["view"] if "-1" in hold else [])
    assert result.stdout == f"wrong: [] twice: 0 kept: {kept}\n"


def test_a_pin_of_another_thread_is_not_freed() -> None:
    result = run(
        """
        things, inside = make(), threading.Event()
        def use():
            with things[0].manager.use(things[4].key), things[0].use(read=[things[5]]):
                inside.set()
                threading.Event().wait()
        threading.Thread(target=use, daemon=True).start()
        inside.wait(20)
        """
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "wrong: [] twice: 0 kept: ['array', 'context', 'device', 'stream']\n"


def test_a_key_used_by_another_thread_is_not_freed() -> None:
    """Nothing but the key is held, so the device goes; its memory is left where it is."""
    result = run(
        """
        device = lifetimes.open("host")
        key, inside = device.manager.add(np.arange(100_000.0)), threading.Event()
        driver = device.driver.upstream
        def use():
            with device.manager.use(key):
                inside.set()
                threading.Event().wait()
        threading.Thread(target=use, daemon=True).start()
        inside.wait(20)
        lifetimes.shutdown.release_everything()
        print(driver._memory.count, driver._refusal or "open")
        """
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "1 open\n" + NOTHING_LEFT


# Forks.

FORK = (
    HEAD
    + """
if not hasattr(os, "fork"):
    raise SystemExit("no fork")

def in_child(run, how=sys.exit):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            run()
        except BaseException as error:
            print("the child failed:", repr(error), flush=True)
            os._exit(1)
        how(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)

def refused(*uses):
    for use in uses:
        try:
            use()
        except lifetimes.ClosedError as error:
            text = str(error)
            assert "fork" in text or "inherited" in text or "belongs to the process" in text, text
        else:
            raise AssertionError("not refused")
"""
)


@pytest.mark.parametrize("how", ["sys.exit", "os._exit"])
def test_a_child_does_nothing_to_what_it_inherited(how: str) -> None:
    """BUG-013 (PaddlePaddle/Paddle#78171): it says so when it is used, and the parent frees each once."""
    result = run(
        f"""
        things = make()
        device, stream, event, owned, array = things[:5]
        owned.add_finalizer(lambda: print("freed by", "parent" if os.getpid() == main else "CHILD", flush=True))
        module_level = things[-1]

        def child():
            global module_level
            refused(array.numpy, lambda: array.write(0), array.evict, lambda: array[0], lambda: device.zeros(3),
                    device.create_stream, lambda: device.use(read=[array]), lambda: device.call(len),
                    lambda: stream.idle, stream.synchronize, owned.use, lambda: device.borrow_stream(3),
                    lambda: array.to_device(lifetimes.current_device()))
            assert not lifetimes.live() or all(row.label == "host:0" or row.kind in ("context", "stream")
                                               for row in lifetimes.live())
            del module_level
            things.clear()
            gc.collect()
            lifetimes.drain()
            with lifetimes.open("host", memory_limit="1MiB") as own:
                assert own.asarray(np.arange(100_000.0))[3:].numpy()[0] == 3.0
            lifetimes.current_device().zeros(100_000).numpy()

        print(in_child(child, {how}))
        assert array[1:].numpy()[1] == -2.0, array.numpy()
        """,
        head=FORK,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "0\nfreed by parent\n" + NOTHING_LEFT


def test_a_fork_inside_a_block_with_work_in_flight_and_the_lock_held() -> None:
    """The child leaves the block, asks for the current device, and ends; nobody waits for a thread that is not there."""
    result = run(
        """
        from lifetimes.locks import lock
        gate, held, let_go = threading.Event(), threading.Event(), threading.Event()
        things = make(gate.wait)
        default = lifetimes.current_device()

        def hold():
            with lock:
                held.set()
                let_go.wait(20)

        threading.Thread(target=hold).start()
        held.wait(20)

        def child():
            with lifetimes.current_device() as mine:
                assert mine is not default and mine is not things[0]
                assert mine.asarray([1.0]).numpy()[0] == 1.0

        device = things[0].__enter__()
        assert lifetimes.current_device() is device
        print(in_child(child))
        print(in_child(lambda: device.__exit__(None, None, None)))
        let_go.set()
        gate.set()
        device.__exit__(None, None, None)
        """,
        head=FORK,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "0\n0\n" + NOTHING_LEFT


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes(method: str, tmp_path: Path) -> None:
    """A file that a lifetime of the parent guards is there until the parent ends, whatever workers do.

    BUG-029 (sagemath/sage#39201).
    """
    script, guarded = tmp_path / "script.py", tmp_path / "guarded"
    body = f"""
def work(number):
    import lifetimes
    with lifetimes.open("host", memory_limit="1MiB") as device:
        return float(device.asarray(np.arange(10.0))[number].numpy())

if __name__ == "__main__":
    import multiprocessing
    things = make()
    guarded = {str(guarded)!r}
    open(guarded, "w").close()
    guard = lifetimes.Lifetime(guarded, os.remove, guarded, parents=[things[4]])
    context = multiprocessing.get_context({method!r})
    with context.Pool(2) as pool:
        print(pool.map(work, range(3)), flush=True)
    process = context.Process(target=work, args=(1,))
    process.start()
    process.join()
    print(process.exitcode, os.path.exists(guarded), flush=True)
"""
    script.write_text(HEAD + body)
    command = [sys.executable, "-X", "dev", "-W", "error", "-W", "ignore::DeprecationWarning", str(script)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "[0.0, 1.0, 2.0]\n0 True\n" + NOTHING_LEFT
    assert not guarded.exists()
    assert os.listdir(tmp_path) == ["script.py"]
