"""Reading traces: what is one, what is not, and how a fault is named."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from lifetimes.replay.trace import Trace, TraceFileError, read_trace

USES = """time,key,nbytes
1,7,64
2,8,32
3,7,64
"""
RMM = """Thread,Time,Action,Pointer,Size,Stream
77,10:00:00.000001,allocate,0x7f0000,1024,0x0
77,10:00:00.000002,allocate,0x7f0400,512,0x0
77,10:00:00.000003,allocate failure,0x0,999999,0x0
78,10:00:00.000004,free,0x7f0000,1024,0x0
78,10:00:00.000005,allocate,0x7f0000,256,0x0
"""


@pytest.fixture
def given(tmp_path: Path) -> Any:
    """Read a trace of this text, or these bytes."""

    def read(content: str | bytes, **options: Any) -> Trace:
        path = tmp_path / "trace.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_trace(path, **options)

    return read


def test_uses(given: Any) -> None:
    trace = given(USES)
    assert (trace.keys, trace.sizes, trace.ops, trace.allocations) == ([7, 8, 7], [64, 32, 64], [], False)
    assert trace.footprint() == 96
    assert trace.name == "trace.csv"


def test_allocations_as_rmm_logs_them(given: Any) -> None:
    trace = given(RMM)
    assert trace.allocations
    assert trace.ops == ["allocate", "allocate", "free", "allocate"]
    assert trace.keys == [0, 1, 0, 2], "a pointer that is given again is another key"
    assert trace.sizes == [1024, 512, 1024, 256]
    assert trace.failures == 1
    assert trace.footprint() == 1536


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(USES.encode()),
        USES.replace("\n", "\r\n"),
        "\ufeff" + USES,
        USES.replace("\n", "\n\n") + "  \n",
        USES.rstrip("\n"),
        "nbytes,KEY,other, Time\n64,7,x,1\n32,8,,2\n64,0x7,y,3\n",
    ],
    ids=["gzipped", "other line ends", "byte order mark", "empty lines", "no last line end", "other columns"],
)
def test_the_same_trace_in_other_clothes(given: Any, content: str | bytes) -> None:
    trace = given(content)
    assert (trace.keys, trace.sizes) == ([7, 8, 7], [64, 32, 64])


def test_ops(given: Any) -> None:
    trace = given("time,key,nbytes,op\n1,7,64,r\n2,7,64,WRITE\n3,7,64,rw\n4,7,64,update\n")
    assert trace.ops == ["r", "w", "rw", "rw"]


def test_sizes_that_change_are_counted_or_refused(given: Any) -> None:
    content = "time,key,nbytes\n1,7,64\n2,7,32\n3,7,32\n4,7,64\n"
    assert given(content).changes == 2
    with pytest.raises(
        TraceFileError, match=r"line 3 changes the size of key 7 from 64 to 32 bytes \(--strict-sizes\)"
    ):
        given(content, strict_sizes=True)
    assert given(content, strict_sizes=True, skip_bad_lines=True).sizes == [64, 64]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("4,9", "has 2 fields, the header has 3"),
        ("4,9,64,1", "has 4 fields, the header has 3"),
        ("4,-9,64", "has the key '-9', which is no integer from 0 to"),
        ("4,18446744073709551616,64", "has the key '18446744073709551616'"),
        ("4,9.0,64", "has the key '9.0'"),
        ("4,1_000,64", "has the key '1_000'"),
        ("4,\u0661,64", "has the key '\u0661'"),
        ("4,,64", "has the key ''"),
        ("4,9,-1", "has the nbytes '-1'"),
        ("4,9,64.5", "has the nbytes '64.5'"),
        ("4,9,1e3", "has the nbytes '1e3'"),
        ("4,9,99999999999999999999999", "has the nbytes '9999"),
        ("noon,9,64", "has the time 'noon', which is no number"),
        ("time,key,nbytes", "repeats the header"),
        ("Time, KEY, nbytes", "repeats the header"),
        ("# a remark", "has 1 fields"),
    ],
)
def test_a_malformed_line_is_named_by_its_number_or_counted(given: Any, line: str, fault: str) -> None:
    content = USES + line + "\n5,9,16\n"
    with pytest.raises(TraceFileError, match="line 5 ") as caught:
        given(content)
    assert fault in str(caught.value)
    assert "trace.csv" in str(caught.value)
    trace = given(content, skip_bad_lines=True)
    assert trace.bad_lines == 1
    assert trace.keys == [7, 8, 7, 9]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("1,t,free,0x9999,64,0x0", "frees 0x9999, which is not allocated"),
        ("1,t,allocate,0x7f0400,64,0x0", "allocates 0x7f0400, which has not been freed"),
        ("1,t,reallocate,0x1,64,0x0", "has the action 'reallocate'"),
        ("1,t,allocate,here,64,0x0", "has the pointer 'here'"),
        ("1,t,allocate,0x1,64", "has 5 fields, the header has 6"),
        ("Thread,Time,Action,Pointer,Size,Stream", "repeats the header"),
    ],
)
def test_a_malformed_line_of_a_log(given: Any, line: str, fault: str) -> None:
    with pytest.raises(TraceFileError, match="line 7 ") as caught:
        given(RMM + line + "\n")
    assert fault in str(caught.value)
    assert given(RMM + line + "\n", skip_bad_lines=True).bad_lines == 1


def test_an_allocation_of_nothing_is_passed_over(given: Any) -> None:
    lines = "".join(f"1,t,{action},0x0,0,0x0\n" for action in ("allocate", "allocate", "free", "free"))
    assert len(given(RMM + lines)) == 4


def test_a_line_of_a_wrong_op(given: Any) -> None:
    with pytest.raises(TraceFileError, match="line 2 has the op 'x', which is none of r, read"):
        given("time,key,nbytes,op\n1,7,64,x\n")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "it is empty"),
        ("\n\n", "it is empty"),
        ("time,key,nbytes\n", "there is nothing to replay in it"),
        ("time,key\n1,2\n", "line 1 is no header of a trace: it lacks nbytes; a trace of uses has the columns"),
        ("1,7,64\n", "it lacks time, key, nbytes"),
        ("Thread,Time,Action,Pointer\n", "it lacks size, stream"),
        ("time,key,nbytes,key\n1,2,3,4\n", "the header names key twice"),
        (bytes(range(256)) * 9, "no header of a trace"),
        ("time,key,nbytes\nx\ny\n", "line 2 has 1 fields"),
    ],
)
def test_what_is_no_trace(given: Any, content: str | bytes, fault: str) -> None:
    with pytest.raises(TraceFileError, match=r"trace\.csv: ") as caught:
        given(content)
    assert fault in str(caught.value)


def test_nothing_but_malformed_lines_is_nothing_to_replay(given: Any) -> None:
    with pytest.raises(TraceFileError, match="nothing to replay in it, but malformed lines: 2"):
        given("time,key,nbytes\nx\ny\n", skip_bad_lines=True)


def test_a_file_that_is_cut_off_is_named_by_its_last_line(given: Any) -> None:
    many = "time,key,nbytes\n" + "".join(f"{n},{n * 7919 % 10007},{n}\n" for n in range(1, 20_000))
    whole = gzip.compress(many.encode())
    with pytest.raises(TraceFileError, match=r"the file is cut off after line \d+") as caught:
        given(whole[: len(whole) // 2])
    last = int(str(caught.value).split("after line ")[1].split(";")[0])
    assert 2 < last < 20_000
    trace = given(whole[: len(whole) // 2], skip_bad_lines=True)
    assert trace.bad_lines >= 1
    assert last - 2 <= len(trace) <= last - 1


def test_damaged_and_trailing_bytes_are_told(given: Any) -> None:
    whole = bytearray(gzip.compress(USES.encode()))
    whole[-6] ^= 0xFF  # the checksum
    with pytest.raises(TraceFileError, match="the compressed data are damaged"):
        given(bytes(whole))
    with pytest.raises(TraceFileError, match="the compressed data are damaged"):
        given(gzip.compress(USES.encode()) + b"rubbish")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(IsADirectoryError):
        read_trace(tmp_path)


def test_progress_is_told_up_to_the_end(given: Any) -> None:
    told: list[tuple[int, int]] = []
    content = "time,key,nbytes\n" + "1,2,3\n" * 9000
    given(content, progress=lambda done, size: told.append((done, size)))
    assert told[-1] == (len(content), len(content))
    assert len(told) >= 3
    assert [done for done, _ in told] == sorted(done for done, _ in told)
