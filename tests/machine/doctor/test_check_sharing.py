"""What the doctor says of how much of each core one has."""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import Any

import pytest

from perflib.machine.activity.sharing import CoreShare
from perflib.machine.doctor import check_sharing as module
from perflib.machine.doctor.check_sharing import check_sharing, judged
from perflib.machine.doctor.checkup import examine
from perflib.model.errors import MeasurementError
from tests.machine import trees


def share(cpu: int, alone: float = 99.0, cost: float = 38.0, **more: Any) -> CoreShare:
    values: dict[str, Any] = {"status": "calibrated", "taken_percent": 0.0, "stolen_percent": 0.0}
    return CoreShare(
        cpu=cpu, samples=9000, alone_percent=alone, sibling_cost_percent=cost, **values | more
    )


def test_a_core_that_is_shared() -> None:
    check = judged([share(0, nan, nan, status="no second state"), share(1, 31.2)], virtual=True)
    assert check.state == "warn"
    assert check.now == (
        "cpu0: always in one state: cannot tell whether it is alone; "
        "cpu1: alone 31 %, a sibling costs 38 %"
    )
    assert check.command.startswith("(on the host) virsh vcpupin")
    assert [value["alone_percent"] for value in check.values] == [None, 31.2]


def test_a_core_that_other_tasks_and_the_hypervisor_take() -> None:
    (one,) = (judged([share(2, 100, nan, taken_percent=7.2)], virtual=False),)
    assert (one.state, one.now) == ("warn", "cpu2: alone 100 %, other tasks take 7 %")
    assert one.command.startswith("ps ")
    stolen = judged([share(2, stolen_percent=3.0)], virtual=True)
    assert stolen.now == "cpu2: alone 99 %, a sibling costs 38 %, the hypervisor takes 3 %"


def test_all_is_well_or_unknown() -> None:
    assert judged([share(0), share(1)], virtual=False).state == "good"
    silent = [share(0, nan, nan, status="no first state"), share(1, nan, nan, status="few probes")]
    check = judged(silent, virtual=False)
    assert check.state == "unknown"
    assert check.now.count("cannot tell") == 2
    assert check.command == ""


def test_many_cores_are_reported_in_a_line() -> None:
    check = judged([share(cpu, 99 - cpu) for cpu in range(64)], virtual=False)
    assert check.now.startswith("cpu56: alone 43 %")
    assert check.now.endswith("; 56 more give as much or more")
    assert len(check.values) == 64
    assert check.command.endswith("/smt/control")


def test_another_machine_and_no_kernel_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = examine(trees.container(tmp_path), {})
    assert check_sharing(patient).now == "not this machine"

    def broken(*_: object) -> None:
        msg = "no C compiler"
        raise MeasurementError(msg)

    monkeypatch.setattr(module, "core_shares", broken)
    check = check_sharing(examine(Path("/"), {}))
    assert (check.state, check.now) == ("unknown", "cannot tell: no C compiler")
