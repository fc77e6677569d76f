from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from perflib.instruments.threads.formats import INTERVAL, State
from perflib.instruments.threads.preload import recording as preload_recording
from perflib.instruments.threads.preload.naming import Naming
from perflib.instruments.threads.preload.sampler import READING, Sampled


def test_the_cpu_time_of_others_is_not_the_jobs() -> None:
    busy = [(0, 500), (100, 650), (200, 850)]  # two CPUs
    others = preload_recording._Others(busy)
    intervals = np.zeros(4, INTERVAL)
    intervals["start_ns"], intervals["end_ns"] = [-50, 50, 90, 120], [50, 90, 120, 500]
    intervals["state"] = [State.RUNNING, State.WAITING, State.READY, State.RUNNING]
    others.add(intervals)
    # The job ran 50 of 150 and was ready 10; then it ran 80 of 200 and was ready 20.
    assert others.busy_ns() == 10 + 20
    others.add(intervals[:0])
    assert others.busy_ns() == 30
    alone = preload_recording._Others([(0, 0), (100, 50), (200, 130)])
    alone.add(intervals)
    assert alone.busy_ns() == 0
    assert preload_recording._Others([]).busy_ns() == 0


def test_what_a_process_wrote_of_its_libraries_names_what_was_seen_first() -> None:
    """Of one that ended before its mappings were read; a thread without stamps comes first."""
    process: Any = SimpleNamespace(pid=7, generation=0, maps=Path("/proc/self/maps").read_text())
    naming = Naming(Sampled([], np.empty(0, READING), {7: ""}, {}, []), [process])
    naming.lock(7, 0, "mutex", 16)
    address = ctypes.cast(ctypes.CDLL(None).getppid, ctypes.c_void_p).value
    assert address is not None
    assert naming.symbols(7, 0).name(address) == "getppid"
