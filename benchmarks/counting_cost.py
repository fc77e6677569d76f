"""What counting and sampling cost the job: a kv worker, all configurations in trial in one run.

    python benchmarks/counting_cost.py [--rounds 60] [--trial-ms 200]

Each round visits every configuration in a fresh random order with the same events; costs are paired
within rounds, with intervals from batch means. "nothing, again" is the null comparison: what this
machine shows where there is no cost.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from perflib.instruments.counters.monitor import Monitor
from perflib.instruments.counters.sets import events_of
from perflib.instruments.counters.watched import watch
from perflib.instruments.perf.recorder import Recorder
from perflib.kernels import build
from perflib.measure.conditions import Conditions
from perflib.measure.process import Out, Worker
from perflib.stats.compare import compare_cores

_SEED = 1
_NOTHING = "nothing"
_SETS = ("software", "faults", "generic", "memory")
_TIMES = np.dtype({"names": ["time_ns"], "formats": ["i8"], "offsets": [16], "itemsize": 104})

Configuration = Callable[[], contextlib.AbstractContextManager[object]]


def run_ms(worker: Worker, events: int) -> float:
    """The job's own time for the events, without the call's."""
    numbers = np.arange(events, dtype=np.int64)
    code, (done,) = worker.call(
        "kv_run", _SEED, numbers, events, Out(_TIMES, events), timeout_s=60.0
    )
    assert code == 0
    return 1e-6 * float(done["time_ns"].sum())


def arms_of(pid: int, recorder: Recorder) -> dict[str, tuple[Configuration, float]]:
    """Each configuration's way to count, and the most it may cost in percent."""
    sets = {name: events_of(name) for name in _SETS}
    watched = watch(pid=pid)

    def followed(period_s: float) -> Configuration:
        return lambda: Monitor(sets, watched, period_s=period_s)

    @contextlib.contextmanager
    def sampled() -> Iterator[None]:
        recorder.enable()
        try:
            yield
        finally:
            recorder.disable()

    return {
        _NOTHING: (contextlib.nullcontext, 0.0),
        "nothing, again": (contextlib.nullcontext, 0.0),
        "counting, read every 100 ms": (followed(0.1), 1.0),
        "counting, read every 10 ms": (followed(0.01), 1.0),
        "sampling at 1 kHz": (sampled, 2.0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--trial-ms", type=float, default=200.0)
    asked = parser.parse_args()
    generator = np.random.default_rng(_SEED)
    conditions = Conditions(cpu=max(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as folder, Worker(build("kv"), conditions) as worker:
        run_ms(worker, 100)
        events = max(1, round(1000 * asked.trial_ms / run_ms(worker, 1000)))
        assert worker.pid is not None
        with Recorder(worker.pid, folder=Path(folder), frequency_hz=1000) as recorder:
            configurations = arms_of(worker.pid, recorder)
            names = list(configurations)
            times_ms = np.zeros((asked.rounds, len(names)))
            start_s = np.zeros(asked.rounds)
            for number in range(asked.rounds):
                start_s[number] = time.monotonic()
                for configuration in generator.permutation(len(names)):
                    with configurations[names[configuration]][0]():
                        times_ms[number, configuration] = run_ms(worker, events)
            print(f"sampled: {recorder.event}; {events} events a trial", flush=True)
    for index, name in enumerate(names[1:], start=1):
        cost = compare_cores(np.log(times_ms[:, [0, index]]), start_s).effects[1].slowdown
        limit = configurations[name][1]
        verdict = "reached" if cost.effect <= limit else "MISSED"
        verdict = f"at most {limit:g}: {verdict}" if limit else "the null comparison"
        print(
            f"{name}: {cost.effect:+.2f} percent [{cost.low:+.2f}, {cost.high:+.2f}], {verdict}",
            flush=True,
        )


if __name__ == "__main__":
    main()
