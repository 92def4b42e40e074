"""Finding devices, and what is said where there are none."""

from __future__ import annotations

import os
import sys
from typing import Any, ClassVar

import pytest

import lifetimes
from lifetimes.errors import BackendError
from lifetimes_opencl import backend, probing
from lifetimes_opencl.probing import Found, Survey
from tests.opencl.here import open_driver, require, run_python

USABILITY = "import lifetimes_opencl as lo; u = lo.backend.usability(); print(u.usable, u.reason, u.remedy, sep='|')"
NOWHERE = "/proc/nowhere"
"""A folder that not even root can make."""


def test_importing_the_back_end_imports_no_vendor_library() -> None:
    result = run_python("import sys, lifetimes_opencl; print('pyopencl' in sys.modules)")
    assert (result.stdout, result.stderr) == ("False\n", "")


def test_what_pyopencl_warns_of_stays_inside(tmp_path: Any) -> None:
    """A module that pytools imports is put in the way, and warns; with warnings as errors that would end the import."""
    require()
    (tmp_path / "siphash24.py").write_text(
        "import importlib.machinery, importlib.util, sys, warnings\n"
        "warnings.warn('planted')\n"
        f"elsewhere = [path for path in sys.path if path != {str(tmp_path)!r}]\n"
        "spec = importlib.machinery.PathFinder.find_spec('siphash24', elsewhere)\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "siphash13 = module.siphash13\n"
    )
    script = """
        import sys
        import lifetimes
        with lifetimes.open("opencl") as device:
            kernel = device.compile("__kernel void f(__global int *x) { x[0] = 7; }")["f"]
            x = device.zeros(1, "int32")
            kernel.launch(x, size=1)
            print(x.numpy()[0])
    """
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    result = run_python(script, PYTHONPATH=path)
    assert (result.stdout, result.stderr, result.returncode) == ("7\n", "", 0)
    bare = run_python("import pyopencl", PYTHONPATH=path)
    assert "planted" in bare.stderr, "the plant does warn"


@pytest.mark.parametrize("index", [0, "pocl", "POCL 3", "*portable*", "*PoCL 3.?-rc*", "portable computing language"])
def test_a_device_is_opened_by_index_or_by_pattern(index: Any) -> None:
    require()
    driver = backend.open(index)
    assert "PoCL" in driver.device.platform.version or index == 0
    driver.close()


@pytest.mark.parametrize("index", [-1, 99, True, "no such device", "*PoCL 99*", None, 1.0])
def test_an_index_or_pattern_that_matches_nothing_is_answered_by_what_there_is(index: Any) -> None:
    require()
    name = backend.devices()[0].name.partition(" (")[0]
    with pytest.raises(BackendError) as caught:
        backend.open(index)
    assert repr(index) in str(caught.value)
    assert name in str(caught.value)


def test_a_device_says_which_versions_it_has() -> None:
    index = require()
    found = backend.devices()[index]
    assert "PoCL" in found.version
    assert "driver" in found.version


def test_a_kind_of_memory_that_is_not_there_is_answered_by_those_that_are() -> None:
    with pytest.raises(BackendError, match="'virtual'; it has fine, coarse, buffers"):
        backend.open(require(), memory="virtual")


def test_without_pyopencl_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "find_spec", lambda name: None)
    usability = backend.usability()
    assert (usability.usable, usability.reason) == (False, "PyOpenCL is not installed")
    assert "device-lifetimes[opencl]" in usability.remedy
    assert backend.devices() == ()
    with pytest.raises(BackendError, match="PyOpenCL is not installed"):
        lifetimes.open(backend)
    with pytest.raises(BackendError, match="PyOpenCL is not installed"):
        backend.open()


def test_without_a_platform_it_says_what_to_install() -> None:
    require()
    result = run_python(USABILITY, OCL_ICD_VENDORS=NOWHERE)
    assert result.stdout.startswith("False|no OpenCL platform is installed|Install ")
    assert "pocl-binary-distribution" in result.stdout
    assert result.stderr == ""


def test_without_a_linker_it_says_so_and_lives_even_if_the_cache_is_warm() -> None:
    """PoCL ends the process that launches a kernel without it."""
    require()
    backend.open(require()).close()  # the probe's kernel has been compiled before
    result = run_python(USABILITY, PATH=NOWHERE)
    assert result.returncode == 0
    usable, reason, remedy = result.stdout.split("|")
    assert usable == "False"
    assert '"ld"' in reason
    assert "binutils" in remedy


@pytest.mark.parametrize("variables", [("HOME",), ("XDG_CACHE_HOME", "POCL_CACHE_DIR")])
def test_without_a_folder_for_caches_it_says_so(variables: tuple[str, ...], tmp_path: Any) -> None:
    require()
    environment = dict.fromkeys(variables, NOWHERE)
    if "POCL_CACHE_DIR" in environment:  # then it is PyOpenCL that has none
        environment["POCL_CACHE_DIR"] = str(tmp_path)
    else:
        environment |= {"XDG_CACHE_HOME": NOWHERE}
    result = run_python(USABILITY, **environment)
    assert result.stdout.startswith("False|")
    assert "set POCL_CACHE_DIR, XDG_CACHE_HOME or HOME" in result.stdout


class TestSurvey:
    """The reader of the probe, with a probe that says what it is told to."""

    ROW: ClassVar[dict[str, Any]] = {
        "platform_index": 0,
        "platform": "Any",
        "platform_version": "OpenCL 3.0 Any 1",
        "driver_version": "1",
        "total_memory": 1 << 30,
    }

    def devices(self, *problems: str | None) -> list[Any]:
        """Rows for so many devices; the probe dies in the one whose problem is None."""
        rows: list[Any] = [{"platforms": [["Any", "OpenCL 3.0 Any 1"]]}]
        for index, problem in enumerate(problems):
            rows.append({"begin": True, "device_index": index, "device": f"device {index}", **self.ROW})
            if problem is None:
                return rows
            rows.append({"problem": problem})
        return [*rows, {"end": True}]

    def survey(self, monkeypatch: pytest.MonkeyPatch, *runs: tuple[list[Any], str]) -> Survey:
        answers = iter(runs)
        passed_over: list[int] = []

        def run(count: int) -> tuple[list[Any], str]:
            passed_over.append(count)
            return next(answers)

        monkeypatch.setattr(probing, "_run", run)
        monkeypatch.setattr(probing, "survey", lambda: found)
        monkeypatch.setattr(probing, "find_spec", lambda name: name)
        found: Survey = SURVEY.__wrapped__()
        self.passed_over = passed_over
        return found

    def test_a_device_that_ends_the_process_is_left_out_and_the_others_are_tried(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rest = [row | {"device_index": 2, "device": "device 2"} if "begin" in row else row for row in self.devices("")]
        found = self.survey(monkeypatch, (self.devices("", None), "it was ended by signal 6"), (rest, "it ended"))
        assert self.passed_over == [0, 2]
        assert [each.problem for each in found.devices] == ["", "it was ended by signal 6", ""]
        assert [each.name for each in backend.devices()] == ["device 0 (Any)", "device 2 (Any)"]
        usability = backend.usability()
        assert usability.usable
        assert "device 1 (Any) fails: it was ended by signal 6" in usability.reason

    def test_a_probe_that_says_nothing_is_a_failure_and_not_a_loop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.survey(monkeypatch, ([], "the process that tried it had not answered after 60 s"))
        usability = backend.usability()
        assert not usability.usable
        assert "60 s" in usability.reason

    def test_when_every_device_fails_the_back_end_is_not_usable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.survey(monkeypatch, (self.devices("ValueError: wrong", "ValueError: wrong again"), "it ended"))
        usability = backend.usability()
        assert not usability.usable
        assert "device 1 (Any) fails: ValueError: wrong again" in usability.reason

    def test_a_platform_without_devices_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.survey(monkeypatch, (self.devices(), "it ended"))
        assert backend.usability().reason == "no platform has a device: Any (OpenCL 3.0 Any 1)"

    def test_a_failure_of_the_whole_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.survey(monkeypatch, ([{"failure": "ImportError: no libOpenCL"}], "it ended"))
        assert backend.usability().reason == "PyOpenCL does not work: ImportError: no libOpenCL"


SURVEY = probing.survey


def test_a_probe_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(probing, "SECONDS", 0.1)
    monkeypatch.setattr(sys, "executable", str(hanging))
    rows, ending = probing._run(0)
    assert (rows, ending) == ([], "the process that tried it had not answered after 0.1 s")


def test_a_device_that_has_gone_since_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    require()
    gone = [
        Found(9, 0, "Any", "OpenCL 3.0 Any", "old device", "1", 1),
        Found(0, 0, "Any", "OpenCL 3.0", "other", "1", 1),
    ]
    monkeypatch.setattr(probing, "working", lambda: gone)
    for index in range(2):
        with pytest.raises(BackendError, match="has gone"):
            backend.open(index)


def test_lifetimes_open_finds_it_by_name() -> None:
    require()
    with lifetimes.open("opencl", memory_limit="1MiB") as device:
        assert device.driver.name == "opencl"
        assert device.asarray([1.0, 2.0]).numpy().sum() == 3.0


def test_two_drivers_of_a_device_have_contexts_of_their_own() -> None:
    with open_driver() as one, open_driver() as other:
        assert one.context != other.context
