"""Cores that a process may use, from control groups made up in a folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flexpredict import cores as module
from flexpredict.cores import cores, prepare_threads


@pytest.fixture(autouse=True)
def a_machine_of_sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)), raising=False)


def machine(root: Path, membership: str, files: dict[str, str]) -> Path:
    """A /proc and /sys of one's own. membership: /proc/self/cgroup; files: below /sys/fs/cgroup."""
    for name, text in {"proc/self/cgroup": membership, **{f"sys/fs/cgroup/{at}": files[at] for at in files}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/", {}, 16),
        ("0::/", {"cpu.max": "max 100000"}, 16),
        ("0::/", {"cpu.max": "200000 100000"}, 2),
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/", {"cpu.max": "5000 100000"}, 1),
        ("0::/", {"cpu.max": "6400000 100000"}, 16),
        ("0::/", {"cpu.max": "nonsense"}, 16),
        # The limit of an outer group holds for the inner ones.
        ("0::/pod/box", {"pod/cpu.max": "300000 100000", "pod/box/cpu.max": "max 100000"}, 3),
        ("0::/pod/box", {"pod/cpu.max": "300000 100000", "pod/box/cpu.max": "100000 50000"}, 2),
        # The host's path, seen from a container that has only its own folder.
        ("0::/../../system.slice/box", {"cpu.max": "400000 100000"}, 4),
        ("4:memory:/\n3:cpu,cpuacct:/", {"cpu,cpuacct/cpu.cfs_quota_us": "-1"}, 16),
        (
            "3:cpu,cpuacct:/docker/4f\n0::/",
            {"cpu,cpuacct/cpu.cfs_quota_us": "250000", "cpu,cpuacct/cpu.cfs_period_us": "50000"},
            5,
        ),
        (
            "3:cpuset,cpuacct:/\n1:cpu:/jobs/7",
            {"cpu/jobs/7/cpu.cfs_quota_us": "600000", "cpu/jobs/7/cpu.cfs_period_us": "100000"},
            6,
        ),
    ],
)
def test_a_containers_share_of_the_machine_counts(
    membership: str, files: dict[str, str], expected: int, tmp_path: Path
) -> None:
    assert cores(machine(tmp_path, membership, files)) == expected


def test_fewer_cores_than_the_container_allows_may_be_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3}, raising=False)
    assert cores(machine(tmp_path, "0::/", {"cpu.max": "400000 100000"})) == 1


def test_where_there_are_no_control_groups_all_cores_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cores(tmp_path) == 16
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert cores(tmp_path) == 6


def test_threads_follow_a_containers_share_unless_a_person_says_otherwise(tmp_path: Path) -> None:
    limited = machine(tmp_path / "limited", "0::/", {"cpu.max": "200000 100000"})
    environment: dict[str, str] = {}
    prepare_threads(environment, limited)
    assert environment["OMP_NUM_THREADS"] == "2"
    environment = {"OMP_NUM_THREADS": "8"}
    prepare_threads(environment, limited)
    assert environment["OMP_NUM_THREADS"] == "8"


def test_torch_chooses_the_number_of_threads_where_there_is_no_limit(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    prepare_threads(environment, tmp_path)
    assert "OMP_NUM_THREADS" not in environment
    assert module.cores() >= 1


def test_waiting_threads_sleep_soon_unless_a_person_says_otherwise(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    prepare_threads(environment, tmp_path)
    assert environment == {"GOMP_SPINCOUNT": "10000"}
    for chosen in ({"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}):
        environment = dict(chosen)
        prepare_threads(environment, tmp_path)
        assert environment == chosen


def test_the_command_line_prepares_threads_before_torch_is_there() -> None:
    """OpenMP reads its settings when torch is imported, and never again."""
    program = (
        "import os, sys; from flexpredict import cli; cli.main(['pretran']); "
        "print('torch' in sys.modules, os.environ['GOMP_SPINCOUNT'])"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "10000"]
