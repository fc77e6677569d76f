"""One event among many short ones: what of it is recorded, what that costs the job and the disk.

A job of 10,000 events of 5 ms, of which every hundredth takes 10 ms, runs without perf, with one of
its events recorded, and with the slowest 1 % kept; rounds in turn. The job writes its own time of
each event, so that the cost and the choice are compared with the truth. Run it on a quiet machine,
and again beside a load: ``python benchmarks/record_one_event.py --events 10000``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import threading
from pathlib import Path

from perflib.instruments.joblog.joblog import JobEvent
from perflib.instruments.joblog.jobrun import run_job
from perflib.instruments.joblog.logformat import LogFormat
from perflib.instruments.joblog.wanted import Wanted
from perflib.instruments.perf.event_profile import EventProfile, Sampling, profile_job
from perflib.instruments.perf.slowest import Slowest
from perflib.measure.conditions import Conditions

FORMAT = LogFormat(r"begin (?P<event>\d+)", r"end (?P<event>\d+) took (?P<seconds>\S+) s")
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
__attribute__((noinline)) void every(long n) { for (volatile long i = 0; i < n; i++); }
__attribute__((noinline)) void rare(long n) { for (volatile long i = 0; i < n; i++); }
int main(int argc, char **argv) {
    (void)argc;
    long events = atol(argv[1]), n = 1 << 20;
    double best = 1e9;
    for (int trial = 0; trial < 20; trial++) {
        double begin = now();
        every(n);
        if (now() - begin < best) best = now() - begin;
    }
    n = (long)(n * 0.005 / best);
    for (long event = 0; event < events; event++) {
        printf("begin %ld\n", event);
        fflush(stdout);
        double begin = now();
        every(n);
        if (event % 100 == 37) rare(n);
        printf("end %ld took %.9f s\n", event, now() - begin);
        fflush(stdout);
    }
}
"""
FREQUENCY_HZ = 2000


def usual_ms(events: list[JobEvent]) -> float:
    """The job's own time of an ordinary event, half of which are faster."""
    times = [one.reported_seconds for one in events if int(one.label) % 100 != 37]
    return 1e3 * statistics.median(time for time in times if time is not None)


class Largest(threading.Thread):
    """The most bytes that a folder held."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder, self._end = folder, threading.Event()
        self.bytes = 0

    def run(self) -> None:
        """Look at it ten times a second."""
        while not self._end.wait(0.1):
            sizes = [file.stat().st_size for file in self._folder.glob("*") if file.exists()]
            self.bytes = max(self.bytes, sum(sizes))

    def stop(self) -> None:
        """Look no more."""
        self._end.set()
        self.join()


def profiled(argv: list[str], slowest: Slowest | None, seen: list[JobEvent]) -> EventProfile:
    """The job with the middle event recorded, or with the slowest ones kept."""
    middle = str(int(argv[1]) // 2)
    with tempfile.TemporaryDirectory() as folder:
        largest = Largest(Path(folder))
        largest.start()
        profile = profile_job(
            argv,
            FORMAT,
            Wanted(r"\d+" if slowest else middle),
            folder=Path(folder),
            timeout_s=3600,
            conditions=Conditions(cpu=max(os.sched_getaffinity(0))),
            sampling=Sampling(frequency_hz=FREQUENCY_HZ, call_graph="fp"),
            slowest=slowest,
            on_end=lambda event, _pid: seen.append(event),
        )
        largest.stop()
        print(f"  at most {largest.bytes / 2**20:.2f} MiB on the disk meanwhile")
    return profile


def main() -> None:
    """Print the figures of every round."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "job.c", Path(folder) / "job"
        source.write_text(PROGRAM)
        flags = ["-O1", "-fno-omit-frame-pointer", "-w"]
        subprocess.run(["cc", *flags, "-o", program, source], check=True)
        argv = [str(program), str(given.events)]
        cpu = Conditions(cpu=max(os.sched_getaffinity(0)))
        for number in range(given.rounds):
            load = os.getloadavg()[0]
            print(f"round {number}, load {load:.1f}")
            alone = usual_ms(run_job(argv, FORMAT, cpu, timeout_s=3600).events)
            print(f"alone: {alone:.3f} ms an event")
            for what in ("one event", "the slowest 1 %"):
                seen: list[JobEvent] = []
                slowest = Slowest(1, FREQUENCY_HZ) if what != "one event" else None
                print(f"{what}:")
                profile = profiled(argv, slowest, seen)
                covered = [one.coverage.covered_percent for one in profile.events]
                print(f"  the job's events: {100 * (usual_ms(seen) / alone - 1):+.2f} % longer")
                print(f"  covered: {statistics.median(covered):.1f} % (worst {min(covered):.1f})")
                if slowest is not None:
                    slow = [one for one in profile.events if one.name == "slowest"]
                    right = sum(int(one.job_event.label) % 100 == 37 for one in slow)
                    samples = sum(one.coverage.samples for one in profile.events)
                    print(f"  {right} of the {len(slow)} kept as slowest are; {samples} samples")
                print(*(f"  problem: {problem}" for problem in profile.problems), sep="\n")


if __name__ == "__main__":
    main()
