"""The end of the process, however it comes: what is released, in which order, and what stderr says."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.unit.lifetimes.helpers import run_script

FAMILY = """
context = own("context")
stream = own("stream", context)
array = own("array", context, stream)
view = own("view", array)
"""
FREED = ["view", "array", "stream", "context"]

ENDS = {
    "the end of the script": ("", 0, ""),
    "an exception": ("raise ValueError('on purpose')", 1, "ValueError: on purpose"),
    "sys.exit": ("sys.exit(3)", 3, ""),
    "sys.exit with a message": ("sys.exit('sorry')", 1, "sorry"),
    "sys.exit in a thread": ("t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()", 0, ""),
    "an exception in a thread": (
        "threading.excepthook = lambda args: None\nt = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()",
        0,
        "",
    ),
    "a daemon thread that waits": (
        "threading.Thread(target=threading.Event().wait, daemon=True).start()",
        0,
        "",
    ),
    "a daemon thread that makes and drops lifetimes": (
        """
def churn():
    while True:
        Lifetime(None, int)
threading.Thread(target=churn, daemon=True).start()
""",
        0,
        "",
    ),
    "a thread that is not a daemon and ends later": (
        """
go = threading.Event()
def late():
    go.wait()
    own("made late")
    free("thread ends")
threading.Thread(target=late).start()
threading._register_atexit(go.set)
""",
        0,
        "",
    ),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt"),
    "MemoryError": ("raise MemoryError", 1, "MemoryError"),
}


@pytest.mark.parametrize("end", ENDS)
def test_everything_is_released_children_first(end: str, tmp_path: Path) -> None:
    """inducer/pycuda#74: a context torn down before what is in it.  Exit code and stderr are the program's own."""
    script, code, says = ENDS[end]
    ended = run_script(FAMILY + script, tmp_path)
    assert ended.code == code, ended
    assert ended.err.endswith(says + "\n" if says else ""), ended
    assert bool(says) == bool(ended.err), ended
    extra = ["made late", "thread ends"] if "made late" in script else []
    assert ended.freed == extra + FREED


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_signal_that_kills_releases_nothing_and_says_nothing(tmp_path: Path) -> None:
    """inducer/pycuda#74: with default handling nobody is asked; the operating system takes everything."""
    ended = run_script(FAMILY + "import signal\nos.kill(os.getpid(), 15)\nsignal.pause()", tmp_path)
    assert (ended.code, ended.err, ended.freed) == (-signal.SIGTERM, "", [])


def test_a_signal_handler_that_exits_releases_everything(tmp_path: Path) -> None:
    script = (
        FAMILY + "import signal\nsignal.signal(15, lambda *_: sys.exit(4))\nos.kill(os.getpid(), 15)\nsignal.pause()"
    )
    ended = run_script(script, tmp_path)
    assert (ended.code, ended.err, ended.freed) == (4, "", FREED)


def test_os_exit_releases_nothing(tmp_path: Path) -> None:
    ended = run_script(FAMILY + "os._exit(5)", tmp_path)
    assert (ended.code, ended.err, ended.freed) == (5, "", [])


WORK = """
class Work:
    asked = 0
    def __init__(self, asks): self.asks = asks
    def completed(self):
        self.asked += 1
        return self.asked > self.asks
"""


def test_pending_work_is_waited_for(tmp_path: Path) -> None:
    ended = run_script(FAMILY + WORK + "array.after(Work(20))\nview.close()", tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert ended.freed == FREED


def test_pending_work_that_does_not_end_is_left_with_its_ancestors(tmp_path: Path) -> None:
    """After the time that is given to it, with one warning."""
    script = (
        FAMILY
        + WORK
        + "lifetimes.shutdown.PENDING_LIMIT = 0.05\nother = own('other', context)\narray.after(Work(10**9))"
    )
    ended = run_script(script, tmp_path)
    assert ended.code == 0
    assert ended.err.count("CleanupWarning") == 1
    assert (
        "work in flight did not finish within 0.05 s at exit; left to the operating system: object 'array'" in ended.err
    )
    assert ended.freed == ["other", "view"]


@pytest.mark.parametrize("how", ["exported", "pinned", "pinned by a daemon thread"])
def test_what_is_in_use_is_never_freed_nor_what_it_needs(how: str, tmp_path: Path) -> None:
    """numpy/numpy#22507: somebody still reads it, perhaps after us."""
    script = {
        "exported": "kept = array.export('to C')",
        "pinned": "kept = array.use()\nkept.__enter__()",
        "pinned by a daemon thread": """
entered = threading.Event()
def use():
    with array.use():
        entered.set()
        threading.Event().wait()
threading.Thread(target=use, daemon=True).start()
entered.wait()
""",
    }[how]
    ended = run_script(FAMILY + "other = own('other', context)\n" + script, tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert ended.freed == ["other", "view"]


def test_a_deleter_that_is_called_after_the_exit_hook_does_nothing(tmp_path: Path) -> None:
    """numpy/numpy#22507: after shutdown it leaks rather than crashes."""
    script = "import atexit\nkept = []\natexit.register(lambda kept=kept: [each.release() for each in kept])\n"
    script += RELOAD + FAMILY + "kept += [array.export(), view.export()]\ndel kept, view"
    ended = run_script(script, tmp_path)
    assert (ended.code, ended.err, ended.freed) == (0, "", [])


RELOAD = """
for name in [name for name in sys.modules if name.split(".")[0] == "lifetimes"]: del sys.modules[name]
import lifetimes  # so that the exit hook comes before ours
from lifetimes import Lifetime
"""


@pytest.mark.parametrize("late", ["globals become None", "drops", "makes", "closes"])
def test_late_finalizers_are_no_ops(late: str, tmp_path: Path) -> None:
    """cupy/cupy#2658: a destructor that runs when what it calls is gone."""
    script = f"""
import atexit, builtins
def after_the_hook():
    free("hook done")
    if {late!r} == "globals become None":
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] == "lifetimes":
                for each in list(vars(module)):
                    if not each.startswith("__"): setattr(module, each, None)
    elif {late!r} == "drops":
        late.clear()
        gc.collect()
    elif {late!r} == "makes":
        late.append(Lifetime(None, free, "made late"))
        Lifetime(None, free, "made and dropped late")
    else:
        late[0].close()
        kept.__exit__()
        lifetimes.drain()
atexit.register(after_the_hook)
{RELOAD}
late = [own("one"), own("two")]
kept = late[1].use()
kept.__enter__()
builtins.kept = own("in builtins")
def function(kept=own("in a default")): pass
node = own("in a cycle")
class Holder: pass
sys.modules["holder"] = holder = Holder()
holder.me, holder.node = holder, node
export = own("exported").export()
lifetimes.set_release_mode("eager")
del node, holder, Holder
"""
    ended = run_script(script, tmp_path)
    assert (ended.code, ended.err) == (0, ""), ended
    assert ended.freed == ["in a cycle", "in a default", "in builtins", "one", "hook done"]


def test_finalizers_that_make_close_drop_and_fail_at_exit(tmp_path: Path) -> None:
    script = (
        FAMILY
        + """
warnings.simplefilter("always")
def make():
    held.append(own("made at exit"))
    other = own("made and dropped at exit")
def fail(): raise ValueError("on purpose")
held = []
busy = Lifetime(None, make)
failing = Lifetime(None, fail, label="failing")
closing = Lifetime(None, context.close)
"""
    )
    ended = run_script(script, tmp_path)
    assert ended.code == 0
    assert ended.err.count("CleanupWarning") == 1
    assert "finalizer fail of object 'failing'" in ended.err
    assert ended.freed[:4] == FREED
    assert sorted(ended.freed[4:]) == ["made and dropped at exit", "made at exit"]


def test_a_finalizer_that_never_stops_making_lifetimes_does_not_stop_the_exit(tmp_path: Path) -> None:
    ended = run_script("def again(): kept.append(Lifetime(None, again))\nkept = []\nagain()", tmp_path, timeout=30)
    assert (ended.code, ended.err) == (0, "")


def test_the_lock_in_the_hands_of_a_thread_that_will_not_give_it_back(tmp_path: Path) -> None:
    script = (
        FAMILY
        + """
lifetimes.shutdown.LOCK_LIMIT = 0.05
held = threading.Event()
def hold():
    with lifetimes.locks.lock:
        held.set()
        threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
"""
    )
    ended = run_script(script, tmp_path)
    assert ended.code == 0
    assert ended.err.count("CleanupWarning") == 1
    assert "held the library's lock for 0.05 s at exit" in ended.err
    assert ended.freed == []


def test_an_interrupt_in_a_finalizer_at_exit_loses_none_of_the_others(tmp_path: Path) -> None:
    script = FAMILY + "def strike(): raise KeyboardInterrupt\nview.add_finalizer(strike)\narray.add_finalizer(strike)"
    ended = run_script(script, tmp_path)
    assert ended.freed == FREED
    assert ended.err.count("KeyboardInterrupt") >= 1
    assert "Exception ignored in atexit callback" in ended.err


def test_an_interrupt_while_waiting_at_exit_ends_the_waiting(tmp_path: Path) -> None:
    script = (
        FAMILY
        + WORK
        + """
class Tired(Work):
    def completed(self):
        if self.asked > 3:
            self.asked = 0
            raise KeyboardInterrupt
        return super().completed()
array.after(Tired(10**9))
other = own("other")
first = own("first")
"""
    )
    ended = run_script(script, tmp_path, timeout=30)
    assert ended.freed == ["first", "other", "view"]
    assert "did not finish" in ended.err


@pytest.mark.parametrize("order", ["before", "after"])
def test_no_thread_is_needed_and_the_pools_may_have_ended(order: str, tmp_path: Path) -> None:
    """dask/distributed#7639: a finalizer that shuts a pool down after the pool's own exit handling."""
    script = """
def shut_down():
    pool.shutdown()
    free("pool", len(threading.enumerate()))
    try:
        thread = threading.Thread(target=print)
        thread.start()
        thread.join()
    except RuntimeError:
        pass  # from Python 3.12 on no thread can be started any more: ours needs none
class Owner: pass
"""
    use = "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\npool.submit(int).result()\n"
    make = "lifetime = Lifetime(None, shut_down)\nowner = Owner()\nowned = Lifetime(owner, free, 'owned')\n"
    make += "import weakref\nweak = weakref.ref(owner)\ndel owner, owned\ngc.collect()\nassert weak() is None\n"
    ended = run_script(script + (make + use if order == "before" else use + make), tmp_path)
    assert (ended.code, ended.err) == (0, ""), ended
    assert ended.freed == ["owned", "pool 1"]


def test_warnings_as_errors_at_exit(tmp_path: Path) -> None:
    ended = run_script(FAMILY + "view.add_finalizer(int, 'x')", tmp_path, options=("-W", "error"))
    assert ended.code == 0
    assert "Exception ignored in: <function _Unraisable.__del__" in ended.err
    assert "ValueError: invalid literal" in ended.err
    assert "CleanupWarning: finalizer int of object 'view'" in ended.err
    assert ended.freed == FREED
