"""common/bracket.h: a sample's accounts and probes on this machine, by the kernel core_probe."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from perflib.framework.brackets import BRACKET_COLUMNS, bracket_columns, core_mhz
from perflib.kernels import Kernel
from perflib.lab.neighbour import busy_neighbour
from perflib.machine.hardware.topology import topology
from perflib.stats.alone import STATES, Probes, calibrate, states
from tests.kernels.brackets import PROBES, check_brackets
from tests.kernels.calls import room
from tests.kernels.here import CPUS, launched

CPU = CPUS[-1]
SLICE_NS = 250_000
GROUPS = Path("/sys/fs/cgroup/cpu")

# Run by a process of its own: it joins a group with a quota, and its worker with it.
LIMITED = """
import os, sys
from pathlib import Path
group = Path(sys.argv[1])
(group / "cgroup.procs").write_text(str(os.getpid()))
import numpy as np
from perflib import kernels
from perflib.measure.conditions import Conditions
from perflib.measure.process import Out, Worker
build = kernels.build("core_probe")
record = kernels.record(build, "core_probe")
with Worker(build, Conditions(cpu=int(sys.argv[2]))) as worker:
    taken, (out,) = worker.call(
        "core_probe_run", np.array([int(sys.argv[2])]), 1, 500_000_000, 500_000_000, 250_000,
        Out(record, 2000), 2000, timeout_s=60,
    )
samples = out[:taken]["sample"]
print(*(int(samples[name].sum()) for name in ("time_ns", "cpu_time_ns", "throttled_ns")))
"""
KERNEL = "core_probe"


def probe(
    kernel: Kernel, cpus: list[int] = CPUS[-1:], duration_s: float = 0.2, turn_s: float = 0.02
) -> NDArray[Any]:
    out, records = room(kernel, "core_probe", 100_000)
    times_ns = int(1e9 * duration_s), int(1e9 * turn_s), SLICE_NS
    taken = kernel.lib.core_probe_run(cpus, len(cpus), *times_ns, records, len(out))
    assert taken > 0
    return out[:taken]


def waited(samples: NDArray[Any]) -> float:
    """Share of the time in which the thread was ready and waited for the core."""
    if (samples["run_delay_ns"] < 0).any():
        pytest.skip("this kernel has no /proc/thread-self/schedstat (CONFIG_SCHED_INFO)")
    delay = np.minimum(samples["run_delay_ns"], samples["time_ns"])
    return float(delay.sum() / samples["time_ns"].sum())


# --- what a sample says ---------------------------------------------------------------------------


def test_fields_are_plausible(kernel: Kernel) -> None:
    records = probe(kernel)
    samples = records["sample"]
    assert (records["cpu"] == CPU).all()
    assert (np.diff(samples["start_ns"]) > SLICE_NS).all()
    assert (samples["time_ns"] >= SLICE_NS).all()
    assert (samples["cpu_time_ns"] > 0).all()
    assert (samples["cpu_time_ns"] <= samples["time_ns"] + 1000).all()
    check_brackets(samples)
    assert (samples["throttled_ns"] == -1).all(), "no quota is watched"
    probes = np.array([samples[name] for name in PROBES[:2]])
    # A few microseconds each, of which some are lengthened by whoever takes the core meanwhile.
    assert 500 < np.median(probes) < 100_000
    mhz = core_mhz(samples)
    assert 300 < np.nanmedian(mhz) < 10_000
    columns = bracket_columns(samples)
    assert set(columns) == {column.name for column in BRACKET_COLUMNS}
    assert columns["throttled_ns"] == [None] * len(samples)


def test_bad_arguments(kernel: Kernel) -> None:
    out = kernel.ffi.new("core_probe[]", 1)
    cpus = kernel.ffi.new("int64_t[]", [CPU])
    null = kernel.ffi.NULL
    for arguments in (
        (null, 1, 1, 1, 1, out, 1),
        (cpus, 0, 1, 1, 1, out, 1),
        (cpus, 1, -1, 1, 1, out, 1),
        (cpus, 1, 1, 0, 1, out, 1),
        (cpus, 1, 1, 1, -1, out, 1),
        (cpus, 1, 1, 1, 1, null, 1),
        (cpus, 1, 1, 1, 1, out, -1),
    ):
        assert kernel.lib.core_probe_run(*arguments) == -1
    assert kernel.lib.core_probe_run(cpus, 1, 10**9, 10**9, 1, null, 0) == 0


# --- who else has the core ------------------------------------------------------------------------


def test_a_quota_stops_the_thread_and_the_sample_says_for_how_long() -> None:
    group = GROUPS / f"perflib-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no group of the cpu controller (version 1) can be made: {error}")
    try:
        try:
            (group / "cpu.cfs_period_us").write_text("20000")
            (group / "cpu.cfs_quota_us").write_text("4000")
        except OSError as error:
            pytest.skip(f"the cpu controller takes no quota: {error}")
        argv = [sys.executable, "-c", LIMITED, str(group), str(CPU)]
        done = launched(*argv, timeout=120)
        assert done.returncode == 0, done.stderr
        time_ns, cpu_time_ns, throttled_ns = map(int, done.stdout.split())
        assert cpu_time_ns < 0.5 * time_ns  # a fifth is allowed
        assert throttled_ns > 0.05 * time_ns
    finally:
        group.rmdir()


def test_a_sibling_that_works_is_seen(kernel: Kernel) -> None:
    allowed = os.sched_getaffinity(0)
    pairs = [core for core in topology().cores() if len(core) > 1 and set(core) <= allowed]
    if not pairs:
        pytest.skip("no core here shows two threads that may be used (thread_siblings_list)")
    cpu, sibling = pairs[-1][:2]
    quiet, busy = [], []
    for _ in range(4):
        quiet.append(probe(kernel, [cpu], 0.3)["sample"])
        with busy_neighbour(sibling, share=0.99):
            busy.append(probe(kernel, [cpu], 0.3)["sample"])
    samples = np.concatenate([*quiet, *busy])
    probes = Probes(*(samples[name].astype(np.float64) for name in PROBES))
    calibration = calibrate({cpu: probes})[cpu]
    if calibration.status != "calibrated":
        pytest.skip(f"cpu{cpu} was never alone for long enough: {calibration.status}")
    found = states(probes, calibration)
    first = sum(map(len, quiet))
    shared = found == STATES.index("shared")
    assert shared[first:].mean() > 0.8
    assert shared[first:].mean() > shared[:first].mean() + 0.2


def test_each_thread_has_its_own_accounts(kernel: Kernel) -> None:
    found: list[NDArray[Any]] = []
    threads = [
        threading.Thread(target=lambda: found.append(probe(kernel, turn_s=10.0))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    for samples in (records["sample"] for records in found):  # on one core: each waits
        assert waited(samples) > 0.05
        assert 1 - samples["cpu_time_ns"].sum() / samples["time_ns"].sum() > 0.05
