"""The pytest plugin, on small suites of their own with leaks planted in them."""

from __future__ import annotations

import importlib.util

import pytest

HEAD = """
    import pytest, lifetimes
    from lifetimes import Lifetime
    kept = []
    def make(label):
        return Lifetime(label, kind="buffer", nbytes=2048, label=label)
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\n")
    return pytester


def run(suite: pytest.Pytester, body: str, *options: str) -> pytest.RunResult:
    """In a process of its own: what the library knows is process-wide."""
    suite.makepyfile(test_it=HEAD + body)
    return suite.runpytest_subprocess("-p", "lifetimes_pytest", *options)


LEAKS = """
    def test_clean():
        x = make("clean")

    def test_global():
        kept.append(make("in a list"))

    def test_after():
        x = make("clean, too")
"""


def test_off_by_default_and_then_the_library_is_not_imported(suite: pytest.Pytester) -> None:
    run(suite, LEAKS).assert_outcomes(passed=3)
    suite.makepyfile(test_it="import sys\ndef test(): assert 'lifetimes' not in sys.modules\n")
    suite.runpytest_subprocess("-p", "lifetimes_pytest").assert_outcomes(passed=1)


def test_a_leak_fails_its_test_and_no_other(suite: pytest.Pytester) -> None:
    result = run(suite, LEAKS, "--leaks=error")
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_global*",
            "1 lifetime left alive:",
            "  buffer 'in a list' #*, 2 KiB",
            "    made at test_it.py:5 in make",
            "    held by test_it.kept*0*",
        ]
    )
    result.stdout.no_fnmatch_line("*ERROR at teardown of test_after*")


def test_a_leak_is_a_warning_where_that_is_asked_for(suite: pytest.Pytester) -> None:
    suite.makeini("[pytest]\nfilterwarnings = error\n")
    result = run(suite, LEAKS, "--leaks=warn")
    result.assert_outcomes(passed=3, warnings=1)
    result.stdout.fnmatch_lines(["*LeakWarning: 1 lifetime left alive:*", "*buffer 'in a list' #*"])


def test_the_ini_file_can_say_it(suite: pytest.Pytester) -> None:
    suite.makeini("[pytest]\nleaks = error\nleaks_stacks = full\n")
    run(suite, LEAKS).assert_outcomes(passed=3, errors=1)
    suite.makeini("[pytest]\nleaks = perhaps\n")
    result = run(suite, LEAKS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*off, warn or error, not 'perhaps'*"])
    suite.makeini("[pytest]\nleaks = error\nleaks_stacks = deep\n")
    result = run(suite, LEAKS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*leaks_stacks is line or full, not 'deep'*"])


def test_the_fixture_checks_one_test(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
    def test_unchecked():
        kept.append(make("unchecked"))

    def test_checked(no_leaks):
        kept.append(make("checked"))

    def test_unchecked_again():
        kept.append(make("unchecked, too"))

    def test_clean(no_leaks):
        make("clean")
    """,
    )
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_checked*", "*buffer 'checked'*"])


def test_the_marker_lets_pass_what_it_names(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
    @pytest.mark.allow_leaks(kind="buf*")
    def test_by_kind():
        kept.append(make("one"))

    @pytest.mark.allow_leaks(label="two")
    @pytest.mark.allow_leaks(label="three")
    def test_by_label():
        kept.extend([make("two"), make("three")])

    @pytest.mark.allow_leaks
    def test_anything():
        kept.append(make("four"))

    @pytest.mark.allow_leaks(label="child")
    def test_what_an_allowed_thing_needs():
        kept.append(Lifetime("c", label="child", parents=[make("its parent")]))

    @pytest.mark.allow_leaks(kind="stream")
    def test_another():
        kept.append(make("five"))

    @pytest.mark.allow_leaks(size=3)
    def test_misspelt():
        pass
    """,
        "--leaks=error",
        "--strict-markers",
    )
    result.assert_outcomes(passed=5, errors=2)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_another*"])
    result.stdout.fnmatch_lines(["*allow_leaks takes kind= and label=, not size*"])


FAILURES = """
    def test_fails():
        local = make("held by the failure")
        child = Lifetime("c", label="and its child", parents=[local])
        assert local is None

    def test_after_the_failure():
        x = make("clean")

    def test_chained():
        local = make("inner")
        try:
            raise KeyError(local.key)
        except KeyError as error:
            raise ValueError("outer") from error

    def test_group():
        local = make("in a group")
        raise ExceptionGroup("several", [ValueError(local.key)])

    def test_in_its_arguments():
        raise ValueError(make("argument"))

    @pytest.fixture
    def broken():
        local = make("in a fixture")
        raise RuntimeError(local.key)

    def test_in_fixture(broken):
        pass

    @pytest.mark.xfail(strict=True)
    def test_xfail():
        local = make("expected")
        assert local is None

    def test_skips():
        local = make("skipped")
        pytest.skip(f"not here: {local.key}")

    def test_after_them_all():
        x = make("clean")
"""


def test_what_a_failure_holds_is_no_leak(suite: pytest.Pytester) -> None:
    """BUG-044 (huggingface/trl#5681): it is said of the failed test, and the next one is not blamed."""
    result = run(suite, FAILURES, "--leaks=error")
    result.assert_outcomes(passed=2, failed=4, errors=1, xfailed=1, skipped=1)
    result.stdout.fnmatch_lines(
        ["*lifetimes at teardown*", "2 lifetimes held by traceback of the failure, which is no leak:"]
    )
    result.stdout.fnmatch_lines(["    held by a traceback: *local variable 'local' of test_fails*"])
    result.stdout.no_fnmatch_line("*left alive*")


def test_a_failure_does_not_excuse_what_is_kept_on_purpose(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
    def test_fails_and_leaks():
        local = make("local")
        kept.append(make("global"))
        assert local is None

    def test_keeps_another_traceback():
        def fails():
            local = make("in a traceback")
            raise ValueError
        try:
            fails()
        except ValueError as error:
            kept.append(error)
    """,
        "--leaks=error",
    )
    result.assert_outcomes(passed=1, failed=1, errors=2)
    result.stdout.fnmatch_lines(["*buffer 'global'*", "    held by test_it.kept*0*"])
    result.stdout.fnmatch_lines(
        ["    held by a traceback: test_it.kept*1* -> the traceback of ValueError -> local variable*"]
    )


def test_a_rerun_is_judged_anew(suite: pytest.Pytester) -> None:
    suite.makeconftest(
        """
        from _pytest.runner import runtestprotocol
        def pytest_runtest_protocol(item, nextitem):  # what plugins that run a failed test again do
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            if any(report.failed for report in reports):
                item._initrequest()
                reports = runtestprotocol(item, nextitem=nextitem, log=False)
            for report in reports:
                item.ihook.pytest_runtest_logreport(report=report)
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            return True
        """
    )
    result = run(
        suite,
        """
    runs = []
    def test_flaky():
        local = make("flaky")
        runs.append(1)
        assert len(runs) > 1

    def test_leaks_once():
        if not kept:
            kept.append(make("the first time"))
    """,
        "--leaks=error",
    )
    result.assert_outcomes(passed=2)


def test_the_variables_of_a_failure_can_be_freed(suite: pytest.Pytester) -> None:
    body = """
    def test_fails():
        local = make("held")
        assert local is None

    def test_after():
        assert [row.label for row in lifetimes.live()] == []
    """
    run(suite, body, "--leaks=error").assert_outcomes(failed=2)
    run(suite, body, "--leaks=error", "--leaks-clear-tracebacks").assert_outcomes(failed=1, passed=1)


def test_fixtures_of_a_wider_scope_are_judged_when_they_end(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
    @pytest.fixture(scope="module")
    def device():
        with lifetimes.open("host") as device:
            yield device

    @pytest.fixture(scope="module")
    def careless():
        kept.append(make("of the fixture"))
        yield

    @pytest.fixture
    def array(device):
        return device.zeros(100)

    def test_uses(device, array):
        device.zeros(3)

    def test_leaks(device, careless):
        kept.append(device.zeros(4, label="of the test"))

    def test_shared_device():
        lifetimes.current_device()

    def test_last(array):
        pass
    """,
        "--leaks=error",
    )
    result.assert_outcomes(passed=4, errors=2)
    result.stdout.fnmatch_lines(
        ["*ERROR at teardown of test_leaks*", "*array 'of the test'*", "*held by test_it.kept*1*"]
    )
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_last*", "*left by the module-scoped fixture 'careless'"])
    result.stdout.no_fnmatch_line("*device 'host*")


def test_what_only_waits_or_only_turns_in_a_circle_is_no_leak(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
    class Work:
        asked = 0
        def completed(self):
            self.asked += 1
            return self.asked > self.enough

    def test_cycle():
        cycle = [make("cycle")]
        cycle.append(cycle)

    def test_work_that_ends():
        work = Work()
        work.enough = 20
        make("in flight").after(work)

    never = Work()
    never.enough = float("inf")
    def test_work_that_does_not_end():
        make("never").after(never)

    def teardown_module():  # or the interpreter waits for it at its end
        never.enough = 0

    def test_suspended():
        def steps():
            with make("suspended").use("a copy"):
                yield
        kept.append(steps())
        next(kept[-1])

    class TestClass:
        def test_attribute(self):
            self.x = make("an attribute")
    """,
        "--leaks=error",
    )
    result.assert_outcomes(passed=5, errors=3)
    result.stdout.fnmatch_lines(["*buffer 'never'*", "*held by work in flight: Work, which has not completed"])
    result.stdout.fnmatch_lines(["*held by a pin (a copy), not given back: test_it.kept*0* -> suspended generator*"])
    result.stdout.fnmatch_lines(["*held by self.x of the test's class, which pytest keeps to the end of the run"])


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="pytest-xdist is not installed")
def test_under_xdist(suite: pytest.Pytester) -> None:
    result = run(suite, LEAKS + FAILURES, "--leaks=error", "-n", "2")
    result.assert_outcomes(passed=5, failed=4, errors=2, xfailed=1, skipped=1)
    result.stdout.fnmatch_lines(["    made at test_it.py:5 in make", "    held by test_it.kept*0*"])
    result.stdout.fnmatch_lines(["*held by traceback of the failure, which is no leak:"])


def test_recording_is_as_it_was_afterwards(pytester: pytest.Pytester) -> None:
    from lifetimes.origins import recorded

    before = recorded()
    pytester.makepyfile("def test(): pass")
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "--leaks=error").assert_outcomes(passed=1)
    assert recorded() == before
