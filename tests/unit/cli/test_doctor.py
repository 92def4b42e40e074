"""What `lifetimes doctor` says of back ends that work, refuse, raise, lie, crash and hang."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lifetimes import registry, tables
from lifetimes.backend import DeviceInfo, Usability
from lifetimes.cli import doctor_diagnosis, main
from lifetimes.cli.doctor_examine import BackendReport, DeviceReport, examine, examine_apart
from lifetimes.errors import BackendError
from lifetimes.testing.sim import SimBackend, SimDriver

PACKAGE = """
import ctypes, os, sys
from lifetimes.backend import DeviceInfo, Usability
from lifetimes.testing.sim import SimBackend, SimDriver


class Unusable(SimBackend):
    name = "unusable"
    def usability(self):
        return Usability(False, "libfrob.so.7 is not there", "install frob 7")


class CrashDriver(SimDriver):
    def copy_in(self, *args):
        print("FROB: internal error 42", file=sys.stderr, flush=True)
        ctypes.string_at(0)


class Crashing(SimBackend):
    name = "crashing"
    def open(self, index=0, **options):
        return CrashDriver(4096)


class Exiting(SimBackend):
    name = "exiting"
    def devices(self):
        print("noise on stdout")
        os._exit(3)


class Hanging(SimBackend):
    name = "hanging"
    def usability(self):
        import threading
        threading.Event().wait()


unusable, crashing, exiting, hanging = Unusable(), Crashing(), Exiting(), Hanging()
"""
ENTRY_POINTS = """[lifetimes.backends]
unusable = broken_backends:unusable
crashing = broken_backends:crashing
exiting = broken_backends:exiting
hanging = broken_backends:hanging
missing = broken_backends:nowhere
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that announces broken back ends, as pip would have installed it."""
    (tmp_path / "broken_backends.py").write_text(PACKAGE)
    metadata = tmp_path / "broken_backends-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-backends\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))


def register(monkeypatch: pytest.MonkeyPatch, backend: SimBackend) -> None:
    """For this test only."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    registry.register(backend)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back ends that may be tried in the process of the tests: no vendor's library."""
    monkeypatch.setattr(registry, "names", lambda: tuple(dict.fromkeys(["host", "sim", *registry._registered])))
    monkeypatch.setattr(registry, "_registered", {})


class Broken(SimBackend):
    """Whatever a test makes of it."""

    name = "broken"


@pytest.mark.usefixtures("here")
def test_a_working_back_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--no-isolate"]) == 0
    said = capsys.readouterr()
    assert not said.err
    rows = [line.split("│")[:2] for line in said.out.splitlines() if "│" in line]
    verdicts = {name.strip(): verdict.strip() for name, verdict in rows if name.strip()}
    for name in ("host", "sim", "dict", "sorted", "judy", "lru"):
        assert verdicts[name] == "works"
    assert all(len(line) <= 80 for line in said.out.splitlines())


def test_what_an_extra_brings(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables._parts, "extras", {"zebra": "savanna", "judy": "core"})
    assert main(["doctor", "--no-isolate", "--backend", "sim"]) == 0
    said = capsys.readouterr().out
    assert "zebra comes with the extra: pip install 'device-lifetimes[savanna]'" in said
    assert "judy comes" not in said  # it is there


@pytest.mark.usefixtures("here")
def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--no-isolate", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["healthy"] is True
    host = next(row for row in found["backends"] if row["name"] == "host")
    assert host["verdict"] == "works"
    assert host["devices"][0]["memory_bytes"] > 0
    assert {row["name"]: row["usable"] for row in found["tables"]}["judy"] is True
    assert "lru" in [row["name"] for row in found["policies"] if row["usable"]]
    assert found["versions"].keys() >= {"lifetimes", "python", "numpy", "platform"}


@pytest.mark.usefixtures("here")
def test_one_back_end_decides_when_it_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(Broken):
        def usability(self) -> Usability:
            return Usability(False, "no licence", "buy one")

    register(monkeypatch, Refusing())
    assert main(["doctor", "--no-isolate", "--backend", "broken"]) == 1
    said = capsys.readouterr().out
    assert "unusable" in said
    assert "no licence" in said
    assert "-> buy one" in said
    assert main(["doctor", "--no-isolate"]) == 0  # host works


@pytest.mark.usefixtures("here")
def test_status_1_without_host(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(
        doctor_diagnosis, "examine", lambda name: BackendReport(name, "fails" if name == "host" else "works")
    )
    assert main(["doctor", "--no-isolate"]) == 1


def test_a_back_end_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    class Raising(Broken):
        def usability(self) -> Usability:
            raise RuntimeError("the bus is\n  on fire")

    register(monkeypatch, Raising())
    assert examine("broken") == BackendReport("broken", "fails", "RuntimeError: the bus is on fire")


def test_a_back_end_without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, Broken(0))
    assert examine("broken") == BackendReport("broken", "unusable", "it is installed and has no device")


def test_the_step_that_failed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoEvents(SimDriver):
        def create_event(self) -> int:
            raise BackendError("events are not to be had")

    class Backend(Broken):
        def open(self, index: int = 0, **options) -> SimDriver:
            return NoEvents(4096) if index == 1 else SimDriver(4096)

    register(monkeypatch, Backend(3))
    report = examine("broken")
    assert report.verdict == "works"
    assert report.reason == "device 1: create and record an event: events are not to be had; the others work"
    assert report.remedy == "use index 0, 2"
    assert [bool(device.problem) for device in report.devices] == [False, True, False]

    register(monkeypatch, Backend2 := type("Backend2", (Backend,), {"name": "worse"})(2))
    monkeypatch.setattr(Backend2, "open", lambda index=0: NoEvents(4096))
    assert examine("worse").verdict == "fails"


@pytest.mark.parametrize("kind", ["copy_in", "copy", "copy_out", "record", "wait", "stream_wait"])
def test_a_call_that_does_nothing_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ability that the program goes through is one that it can find missing."""

    class Lazy(SimDriver):
        pass

    class Backend(Broken):
        def open(self, index: int = 0, **options) -> SimDriver:
            return Lazy(1 << 16)

    setattr(Lazy, kind, lambda self, *args: None)
    register(monkeypatch, Backend(1))
    report = examine("broken")
    if kind == "stream_wait":  # one stream is in order anyway, so this one cannot be told
        assert report.verdict == "works"
    else:
        assert report.verdict == "fails", kind


def test_everything_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[SimDriver] = []

    class Backend(Broken):
        def open(self, index: int = 0, **options) -> SimDriver:
            opened.append(SimDriver(1 << 16, contexts=True))
            return opened[-1]

    register(monkeypatch, Backend(1))
    assert examine("broken").verdict == "works", examine("broken")
    for driver in opened:
        assert not driver.violations
        assert not driver.live_blocks


def test_a_report_survives_the_trip() -> None:
    report = BackendReport("x", "works", devices=(DeviceReport(0, "one", 5, "1.0", "bad"),))
    from dataclasses import asdict

    assert BackendReport.from_json(json.dumps(asdict(report))) == report


def test_apart_a_working_one_is_as_here() -> None:
    assert examine_apart("sim", 60) == examine("sim")


def test_apart_one_that_only_this_process_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, Broken(1))
    report = examine_apart("broken", 60)
    assert (report.name, report.verdict) == ("broken", "works")


@pytest.mark.usefixtures("installed")
def test_a_crash_is_a_line_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--backend", "crashing"]) == 1
    said = capsys.readouterr()
    assert not said.err
    text = " ".join(said.out.split())
    assert "SIGSEGV" in text
    report = examine_apart("crashing", 60)
    assert report.reason == (
        "crashed the process (SIGSEGV) while it tried to copy in (device 0): FROB: internal error 42"
    )


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "verdict", "reason", "remedy"),
    [
        ("unusable", "unusable", "libfrob.so.7 is not there", "install frob 7"),
        ("exiting", "fails", "ended the process with status 3 while it tried to list its devices", ""),
        ("missing", "fails", "could not be loaded: AttributeError", ""),
    ],
)
def test_apart_a_broken_one(name: str, verdict: str, reason: str, remedy: str) -> None:
    report = examine_apart(name, 60)
    assert (report.name, report.verdict, report.remedy) == (name, verdict, remedy)
    assert reason in report.reason


@pytest.mark.usefixtures("installed")
def test_apart_one_that_hangs() -> None:
    report = examine_apart("hanging", 2)
    assert report.verdict == "fails"
    assert report.reason.startswith("did not answer within 2 s")


@pytest.mark.parametrize(
    ("kind", "factory"), [("tables", lambda: 1 / 0), ("tables", "no.such:Table"), ("policies", "no.such:Policy")]
)
def test_a_broken_table_or_policy(kind: str, factory, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = getattr(doctor_diagnosis, kind)._parts
    monkeypatch.setattr(parts, "rows", {**parts.rows, "wrong": factory})
    rows = getattr(doctor_diagnosis.diagnose("sim", isolate=False), kind)
    verdicts = {row.name: row.usable for row in rows}
    assert verdicts["wrong"] is False
    assert verdicts["dict" if kind == "tables" else "lru"] is True
    assert next(row for row in rows if row.name == "wrong").reason


def test_device_information_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(Broken):
        def devices(self):
            return (DeviceInfo(0, "Frobnicator 9000", None, "7.1"),)

    register(monkeypatch, Named(1))
    [device] = examine("broken").devices
    assert device == DeviceReport(0, "Frobnicator 9000", None, "7.1")
