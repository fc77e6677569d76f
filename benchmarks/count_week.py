"""What `perflib count` takes of a machine over a week: memory, disk and CPU, by simulation.

    python benchmarks/count_week.py [--readings 20000] [--cpus 64] [--max-data-mb 4] [--real]

The readings of 64 CPUs are simulated: numbers that grow. With --real they are those of software
counters on the CPUs that there are, so that each reading makes all of its system calls; what these
take (an interrupt of another CPU each, and in a virtual machine an exit) is this machine's.
/proc is a made tree of 64 CPUs. The clock is simulated: readings
follow each other at once, and each is 0.1 s later than the one before. A part of the week is
enough, as long as files are packed and merged several times in it: the last figures are those of
every later part.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib.instruments.counters import counting, groups
from perflib.instruments.counters.events import CounterEvent
from perflib.instruments.counters.groups import open_counter
from perflib.instruments.counters.readings import new_readings
from perflib.instruments.counters.sets import events_of
from perflib.instruments.counters.system_counts import SYSTEM_SETS
from perflib.instruments.counters.watched import CounterTarget, watch

_HZ = 10


def made_proc(root: Path, cpus: int) -> None:
    """The files of /proc that the default events need, of so many CPUs."""
    (root / "proc/pressure").mkdir(parents=True)
    lines = [f"cpu{n} 90000 10 30000 9000000 500 0 700 20 0 0" for n in ("", *range(cpus))]
    (root / "proc/stat").write_text("\n".join([*lines, "intr 99", "ctxt 99", "processes 9", ""]))
    head = "".join(f"{f'CPU{n}':>11}" for n in range(cpus))
    kinds = [
        "HI",
        "TIMER",
        "NET_TX",
        "NET_RX",
        "BLOCK",
        "IRQ_POLL",
        "TASKLET",
        "SCHED",
        "HRTIMER",
        "RCU",
    ]
    rows = [f"{kind + ':':>12}" + "".join(f"{12345:>11}" for _ in range(cpus)) for kind in kinds]
    (root / "proc/softirqs").write_text("\n".join([f"{'':>12}{head}", *rows, ""]))
    schedstat = [f"cpu{n} 0 0 0 0 0 0 99 99 99\ndomain0 ff 1 2 3" for n in range(cpus)]
    (root / "proc/schedstat").write_text("\n".join(["version 15", *schedstat, ""]))
    for name in ("cpu", "memory", "io"):
        line = "{} avg10=0.00 avg60=0.00 avg300=0.00 total=12345\n"
        (root / f"proc/pressure/{name}").write_text(line.format("some") + line.format("full"))


def rss_mib() -> float:
    """The memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    """Read, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readings", type=int, default=20_000)
    parser.add_argument("--cpus", type=int, default=64)
    parser.add_argument("--max-data-mb", type=int, default=4)
    parser.add_argument("--real", action="store_true")
    given = parser.parse_args()
    real, draws = os.cpu_count() or 1, np.random.default_rng(1)
    now_ns = [time.monotonic_ns()]
    clock = SimpleNamespace(
        monotonic_ns=lambda: now_ns[0], time_ns=lambda: now_ns[0], monotonic=lambda: now_ns[0] / 1e9
    )

    def opener(
        event: CounterEvent, target: CounterTarget, leader: int, *, inherit: bool, off: bool
    ) -> int:
        there = replace(target, cpu=target.cpu % real)
        return open_counter(event, there, leader, inherit=inherit, off=off)

    def simulated(counters: NDArray[np.int32]) -> NDArray[Any]:
        found = new_readings(counters.shape)
        jitter = draws.integers(0, 50_000, (2, *counters.shape))
        found["value"] = now_ns[0] // 1000 + jitter[0]
        found["enabled_ns"] = found["running_ns"] = now_ns[0] + jitter[1]
        return found

    if not given.real:
        groups.read_counters = simulated  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        made_proc(root, given.cpus)
        counting.time = clock  # type: ignore[attr-defined, assignment]
        system = [*SYSTEM_SETS["cpu"], *SYSTEM_SETS["pressure"]]
        data = Path(folder) / "counts"
        with counting.Counting(
            {"software": events_of("software")},
            system,
            watch(cpus=range(given.cpus)),
            data,
            most_bytes=given.max_data_mb * 10**6,
            opener=opener,
            root=root,
        ) as one:
            print(f"{given.cpus} CPUs, {len(one.counters)} counters; load {os.getloadavg()[0]:.1f}")
            print("readings  simulated h  CPU us a reading  % of a core at 10 Hz  RSS MiB  disk MB")
            for _ in range(10):
                begun, count = time.process_time(), given.readings // 10
                for _reading in range(count):
                    now_ns[0] += 10**9 // _HZ
                    one.tick()
                each_us = 1e6 * (time.process_time() - begun) / count
                disk = sum(path.stat().st_size for path in data.iterdir()) / 1e6
                done = one.series.intervals
                hours = done / _HZ / 3600
                share = each_us * _HZ / 1e4
                print(
                    f"{done:8d}  {hours:11.2f}  {each_us:16.0f}  {share:20.2f}  {rss_mib():7.1f}"
                    f"  {disk:7.2f}",
                    flush=True,
                )
            print(f"old intervals were merged {one.files.merged} times")


if __name__ == "__main__":
    main()
