from __future__ import annotations

import os
import resource

from perflib.kernels import build
from perflib.measure import workers
from perflib.measure.conditions import Conditions
from perflib.measure.workers import Workers


def test_each_worker_has_its_conditions_and_all_end_together() -> None:
    cores = sorted(os.sched_getaffinity(0))
    with Workers(build("clock_gaps"), [Conditions(cpu=cpu) for cpu in cores]) as started:
        pids = [started[arm].pid for arm in range(len(cores))]
        recorded = started.provenance()
        assert started.violated == []
        assert [entry["obtained"]["cpus"] for entry in recorded["conditions"]] == [
            [c] for c in cores
        ]
        assert recorded["kernel"]["kernel"] == "clock_gaps"
    for pid in pids:
        assert pid is not None
        assert not os.path.exists(f"/proc/{pid}")  # noqa: PTH110 (a process, not a file)


def test_several_kernels_have_a_worker_under_each_of_the_conditions() -> None:
    cpu = min(os.sched_getaffinity(0))
    conditions = [Conditions(cpu=cpu), Conditions()]
    started = Workers([build("clock_gaps"), build("memory_chase")], conditions)
    names = [(started[i].target.name, started[i].conditions) for i in range(4)]
    kernels = ["clock_gaps", "memory_chase"]
    assert names == [(name, wanted) for name in kernels for wanted in conditions]
    recorded = started.provenance()
    assert recorded["kernel"]["kernel"] == "clock_gaps"
    assert [one["kernel"] for one in recorded["kernels"]] == kernels
    assert len(recorded["conditions"]) == 4
    started.problems |= {"the thread migrated": None}
    assert started.violated == ["the thread migrated"]


def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = 600
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (low, before[1]))
        workers._allow_descriptors(10)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == low
        workers._allow_descriptors(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(812, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
