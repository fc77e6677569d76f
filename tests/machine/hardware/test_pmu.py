from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perflib.machine.hardware.pmu import pmu
from tests.machine import trees


def failing(number: int) -> Callable[[], int]:
    def count() -> int:
        raise OSError(number, os.strerror(number))

    return count


@pytest.mark.parametrize(
    ("number", "virtual", "words"),
    [
        (errno.ENOENT, True, "hypervisor does not pass them on"),
        (errno.ENOENT, False, "no driver"),
        (errno.EOPNOTSUPP, False, "no driver"),
        (errno.EACCES, False, "perf_event_paranoid is 4"),
        (errno.ENOSYS, False, "no perf_event_open"),
        (errno.EBUSY, False, "taken"),
        (errno.EINVAL, False, "Invalid argument"),
    ],
)
def test_every_refusal_has_its_reason(
    tmp_path: Path, number: int, virtual: bool, words: str
) -> None:
    trees.write(tmp_path, {"proc/sys/kernel/perf_event_paranoid": "4"})
    found = pmu(tmp_path, virtual, failing(number))
    assert found.available is False
    assert words in found.reason


def test_a_filter_is_distinguished_from_the_sysctl(tmp_path: Path) -> None:
    trees.write(tmp_path, {"proc/sys/kernel/perf_event_paranoid": "2"})
    assert "seccomp" in pmu(tmp_path, count=failing(errno.EPERM)).reason


def test_a_counter_that_stays_at_zero_is_none(tmp_path: Path) -> None:
    assert pmu(tmp_path, count=lambda: 0).available is False
    assert pmu(tmp_path, count=lambda: 1).available is True


def test_a_recorded_machine_is_not_asked(tmp_path: Path) -> None:
    assert pmu(tmp_path).available is None
