"""Tests free memory and cores of control groups, on directory trees like the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.machine.control_groups import cores_in_control_groups, free_in_control_groups_bytes
from paceline.machine.cores import num_usable_cores
from paceline.machine.memory import available_memory_bytes

MIB = 1 << 20
NO_LIMIT_V1 = 9223372036854771712


class Machine:
    """A made-up machine: its /proc and /sys/fs/cgroup are directories under `root`."""

    def __init__(self, root: Path) -> None:
        self.proc, self.mount = root / "proc", root / "cgroup"
        self.proc.mkdir()
        self.mount.mkdir()

    def join(self, *lines: str) -> None:
        (self.proc / "self").mkdir()
        (self.proc / "self" / "cgroup").write_text("".join(f"{line}\n" for line in lines))

    def add_v2(self, path: str, limit: int | str, used: int, inactive: int = 0, active: int = 0) -> None:
        directory = self.mount / path
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "memory.max").write_text(f"{limit}\n")
        (directory / "memory.current").write_text(f"{used}\n")
        (directory / "memory.stat").write_text(
            f"anon 7\nfile {inactive + active}\ninactive_file {inactive}\nactive_file {active}\n"
        )

    def add_v1(self, path: str, limit: int, used: int, inactive: int = 0, active: int = 0) -> None:
        directory = self.mount / "memory" / path
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "memory.limit_in_bytes").write_text(f"{limit}\n")
        (directory / "memory.usage_in_bytes").write_text(f"{used}\n")
        own = "inactive_file 1\nactive_file 1\n"
        (directory / "memory.stat").write_text(f"{own}total_inactive_file {inactive}\ntotal_active_file {active}\n")

    def add_quota_v2(self, path: str, quota: int | str, period: int = 100_000) -> None:
        directory = self.mount / path
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cpu.max").write_text(f"{quota} {period}\n")

    def add_quota_v1(self, path: str, quota: int | str, period: int = 100_000) -> None:
        directory = self.mount / "cpu" / path
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cpu.cfs_quota_us").write_text(f"{-1 if quota == 'max' else quota}\n")
        (directory / "cpu.cfs_period_us").write_text(f"{period}\n")

    def free(self) -> int | None:
        return free_in_control_groups_bytes(self.proc, self.mount)

    def cores(self) -> int | None:
        return cores_in_control_groups(self.proc, self.mount)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_control_groups_there_is_no_limit(machine: Machine) -> None:
    assert machine.free() is None
    machine.join("0::/user.slice/session.scope")
    assert machine.free() is None
    machine.add_v2("user.slice/session.scope", "max", 5 * MIB)
    assert machine.free() is None


def test_a_file_just_downloaded_is_no_use_of_memory(machine: Machine) -> None:
    machine.join("0::/")
    machine.add_v2(".", 2560 * MIB, 1700 * MIB, inactive=1100 * MIB, active=500 * MIB)
    assert machine.free() == 2460 * MIB


def test_the_processs_own_group_is_read(machine: Machine) -> None:
    machine.join("0::/system.slice/paceline.service")
    machine.add_v2("system.slice/paceline.service", 300 * MIB, 100 * MIB, inactive=50 * MIB)
    machine.add_v2("system.slice/other.service", 10 * MIB, 9 * MIB)
    assert machine.free() == 250 * MIB


@pytest.mark.parametrize("add", [Machine.add_v2, Machine.add_v1])
def test_the_tightest_of_the_groups_above_counts(machine: Machine, add) -> None:
    machine.join("9:name=systemd:/x", "4:cpu,memory:/a/b/c", "0::/a/b/c")
    add(machine, "a/b/c", 900 * MIB, 100 * MIB)
    add(machine, "a/b", 800 * MIB, 600 * MIB, inactive=100 * MIB, active=50 * MIB)
    add(machine, "a", 1000 * MIB, 600 * MIB)
    assert machine.free() == 350 * MIB
    add(machine, "a", 1000 * MIB, 990 * MIB, active=MIB)
    assert machine.free() == 11 * MIB


def test_version_1_without_a_limit_leaves_the_machines(machine: Machine) -> None:
    machine.join("4:memory:/a", "0::/")
    machine.add_v1("a", NO_LIMIT_V1, 100 * MIB)
    (machine.proc / "meminfo").write_text("MemTotal:  8192 kB\nMemAvailable:  4096 kB\n")
    assert available_memory_bytes(machine.proc, machine.mount) == 4 * MIB
    machine.add_v1("a", 103 * MIB, 100 * MIB)
    assert available_memory_bytes(machine.proc, machine.mount) == 3 * MIB


@pytest.mark.parametrize("path", ["/docker/0123abcd", "/../other", "/with:colon"])
def test_a_container_whose_path_is_the_hosts_reads_the_root_it_sees(machine: Machine, path: str) -> None:
    machine.join(f"4:memory:{path}", f"0::{path}")
    (machine.mount.parent / "other").mkdir()
    (machine.mount.parent / "other" / "memory.max").write_text(f"{MIB}\n")
    (machine.mount.parent / "other" / "memory.current").write_text("0\n")
    machine.add_v1(".", 700 * MIB, 500 * MIB, inactive=100 * MIB)
    assert machine.free() == 300 * MIB
    machine.add_v2(".", 400 * MIB, 200 * MIB)
    assert machine.free() == 200 * MIB


def test_a_group_beyond_its_limit_has_nothing_free(machine: Machine) -> None:
    machine.join("0::/")
    machine.add_v2(".", 100 * MIB, 120 * MIB)
    assert machine.free() == 0


def test_of_this_machine_it_is_known(machine: Machine) -> None:
    free = free_in_control_groups_bytes(Path("/proc"), Path("/sys/fs/cgroup"))
    assert free is None or free > 0


@pytest.mark.parametrize("add", [Machine.add_quota_v2, Machine.add_quota_v1])
@pytest.mark.parametrize(
    ("quota", "period", "cores"),
    [("max", 100_000, None), (200_000, 100_000, 2), (150_000, 100_000, 2), (1_000, 100_000, 1), (150_000, 50_000, 3)],
)
def test_a_quota_of_time_is_so_many_cores(machine: Machine, add, quota, period, cores) -> None:
    machine.join("4:cpu,cpuacct:/a", "0::/a")
    assert machine.cores() is None
    add(machine, "a", quota, period)
    assert machine.cores() == cores


@pytest.mark.parametrize("add", [Machine.add_quota_v2, Machine.add_quota_v1])
def test_the_smallest_quota_of_the_groups_above_counts(machine: Machine, add) -> None:
    machine.join("9:name=systemd:/x", "4:cpuacct,cpu:/a/b", "0::/a/b")
    add(machine, "other", 100_000)
    add(machine, "a/b", "max")
    add(machine, "a", 300_000)
    assert machine.cores() == 3
    add(machine, "a/b", 800_000)
    assert machine.cores() == 3
    add(machine, ".", 250_000, 125_000)
    assert machine.cores() == 2


@pytest.mark.parametrize("add", [Machine.add_quota_v2, Machine.add_quota_v1])
def test_a_container_whose_path_is_the_hosts_reads_the_quota_of_the_root_it_sees(machine: Machine, add) -> None:
    machine.join("4:cpu,cpuacct:/docker/0123abcd", "0::/docker/0123abcd")
    add(machine, ".", 400_000)
    assert machine.cores() == 4


def test_version_2_groups_with_names_of_version_1_folders_are_not_taken_for_those(machine: Machine) -> None:
    machine.join("0::/a")
    machine.add_quota_v2("cpu", 100_000)
    assert machine.cores() is None


def test_no_more_cores_are_used_than_the_quota_or_the_affinity_allows(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process_id: set(range(10, 74)))
    assert num_usable_cores(machine.proc, machine.mount) == 64
    machine.join("0::/")
    machine.add_quota_v2(".", 200_000)
    assert num_usable_cores(machine.proc, machine.mount) == 2
    machine.add_quota_v2(".", 9_600_000)
    assert num_usable_cores(machine.proc, machine.mount) == 64
