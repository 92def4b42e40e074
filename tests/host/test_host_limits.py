"""How much memory there is: the machine's, or a control group's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lifetimes_host.limits import check_limit, cpu_name, default_limit, group_limits, total_memory

PHYSICAL = total_memory(Path("/nowhere"), Path("/nowhere"))
UNLIMITED_V1 = "9223372036854771712\n"


def group(tmp_path: Path, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A /proc and a /sys/fs/cgroup of our own."""
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(membership)
    for name, text in files.items():
        path = groups / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return proc, groups


def test_version_2_takes_the_tightest_group_on_the_way_up(tmp_path: Path) -> None:
    files = {
        "memory.max": "max\n",
        "user/memory.max": "1000000\n",
        "user/job/memory.max": "5000000\n",
        "user/other/memory.max": "7\n",
    }
    proc, groups = group(tmp_path, "0::/user/job\n", files)
    assert sorted(group_limits(proc, groups)) == [1_000_000, 5_000_000]
    assert total_memory(proc, groups) == 1_000_000
    assert default_limit(proc, groups) == 750_000


def test_version_2_beside_version_1(tmp_path: Path) -> None:
    files = {"unified/job/memory.max": "4096\n"}
    proc, groups = group(tmp_path, "3:cpuset:/\n0::/job\n", files)
    assert total_memory(proc, groups) == 4096


def test_version_1_reads_the_memory_controller_only(tmp_path: Path) -> None:
    files = {
        "memory/memory.limit_in_bytes": UNLIMITED_V1,
        "memory/docker/abc/memory.limit_in_bytes": "2000000\n",
        "cpu/elsewhere/memory.limit_in_bytes": "5\n",
    }
    membership = "5:cpu,cpuacct:/elsewhere\n4:memory:/docker/abc\n"
    proc, groups = group(tmp_path, membership, files)
    assert total_memory(proc, groups) == 2_000_000


def test_a_container_that_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    proc, groups = group(tmp_path, "4:memory:/seen/from/outside\n", {"memory/memory.limit_in_bytes": "3000000\n"})
    assert total_memory(proc, groups) == 3_000_000


@pytest.mark.parametrize("membership", ["", "nonsense\n", "0::/\n", "4:memory:/x\n", "::::\n"])
def test_without_a_limit_the_machine_counts(tmp_path: Path, membership: str) -> None:
    files = {"memory.max": "max\n", "memory/memory.limit_in_bytes": UNLIMITED_V1, "memory/x/other": ""}
    assert total_memory(*group(tmp_path, membership, files)) == PHYSICAL > 0


def test_a_limit_of_none_is_three_quarters() -> None:
    assert check_limit(None) == default_limit() == int(total_memory() * 0.75)


@pytest.mark.parametrize("limit", [1, 2**70, np.int64(4096)])
def test_a_limit_is_any_positive_integer(limit: int) -> None:
    checked = check_limit(limit)
    assert checked == limit
    assert type(checked) is int


REFUSED = [(0, ValueError), (-1, ValueError), (True, TypeError), (1.5, TypeError), ("1GB", TypeError)]


@pytest.mark.parametrize(("limit", "error"), REFUSED)
def test_anything_else_is_refused_by_its_value(limit: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="limit must be") as caught:
        check_limit(limit)  # type: ignore[arg-type]
    assert str(limit) in str(caught.value)


def test_the_device_is_named_after_the_processor(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some Chip 9000 @ 3 GHz\n")
    assert cpu_name(tmp_path) == "Some Chip 9000 @ 3 GHz"
    assert cpu_name(tmp_path / "missing")
