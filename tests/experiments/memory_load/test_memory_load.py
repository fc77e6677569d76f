"""memory_load as its user meets it: what is planned, what fails on the way, real runs, tiny."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.memory_load import KINDS, MemoryLoadParams, experiment, measure
from perflib.experiments.memory_load.measure import array_bytes, pairs_of
from perflib.experiments.memory_load.trials import (
    LoadConfiguration,
    LoadTrials,
    Pair,
)
from perflib.machine.hardware.caches import Cache
from perflib.machine.hardware.topology import topology
from perflib.measure.arrays import SAMPLE, Arrays
from perflib.measure.process import WorkerError
from perflib.measure.streams import (
    ACCOUNT,
    Streams,
    calibrate_delays,
    delays_of,
    moved_by,
)
from perflib.model.errors import MeasurementError, UserError
from perflib.model.run import Run
from tests.experiments.memory_load.load_samples import queue, run_of, samples
from tests.experiments.topologies import places
from tests.reference import memory_load as reference

CPUS = sorted(os.sched_getaffinity(0))
CPU = CPUS[0]
MIB = 1 << 20
TINY: dict[str, Any] = {
    "budget_s": 0.2, "array_mib": 2, "trial_ms": 0.2, "repeats": 2, "rates": [50],
    "kinds": ["read", "triad"],
}  # fmt: skip

needs_this_processor = pytest.mark.skipif(
    bool(experiment.unavailable()), reason=experiment.unavailable()
)
needs_two_cores = pytest.mark.skipif(len(CPUS) < 2, reason="this needs two cores")
pytestmark = needs_this_processor


def params(**given: Any) -> Any:
    return experiment.params({**TINY, **given})


# --- parameters ----------------------------------------------------------------------------------


def test_parameters_as_a_command_line_has_them() -> None:
    made = MemoryLoadParams.parse(["rates=5,12.5", "kinds=triad,read", "array_mib=none"])
    assert (made.rates, made.array_mib) == ([5, 12.5], None)
    assert made.measured_kinds == ["read", "triad"], "in the kernel's order"
    assert MemoryLoadParams().measured_kinds == list(KINDS)
    assert params(kinds="none").measured_kinds == []
    assert params(rates=40).rates == [40]
    assert params(rates=[]).rates == []


def test_kinds_are_those_of_the_kernel_and_of_its_reference() -> None:
    assert KINDS == reference.KINDS
    assert {kind: moved_by(kind) for kind in KINDS} == reference.ARRAYS_MOVED


# --- how large, which cores ----------------------------------------------------------------------


def test_arrays_are_four_times_the_caches_where_memory_allows() -> None:
    assert array_bytes(None, 1, 32 * MIB, 64 << 30) == (128 * MIB, [])
    assert array_bytes(None, 1, 0, 64 << 30) == (64 * MIB, [])
    size, (note,) = array_bytes(None, 2, 512 * MIB, 24 << 30)
    assert 1024 * MIB < size < 2048 * MIB
    assert "STREAM's rules" in note
    assert 2 * 4.1 * size <= (24 << 30) / 2
    size, (note,) = array_bytes(None, 1, 512 * MIB, 4 << 30)
    assert size < 1024 * MIB
    assert "caches answer a part" in note
    size, notes = array_bytes(8, 1, 32 * MIB, 4 << 30)
    assert (size, len(notes)) == (8 * MIB, 1)


def test_what_does_not_fit_into_memory_is_refused() -> None:
    with pytest.raises(UserError, match=r"array_mib: .* give \d+ at most"):
        array_bytes(4096, 1, 32 * MIB, 4 << 30)
    with pytest.raises(UserError, match="array_mib"):
        array_bytes(None, 1, 32 * MIB, 4 * MIB)


def test_each_nodes_memory_is_paired_with_each_nodes_cores() -> None:
    found = pairs_of([0, 1, 2, 3], places({0: 0, 1: 0, 2: 1, 3: 1}))
    assert found == [
        Pair(0, 0, 0, 0, (1,)), Pair(0, 1, 0, 2, (3,)),
        Pair(1, 0, 2, 0, (1,)), Pair(1, 1, 2, 2, (3,)),
    ]  # fmt: skip


def test_a_thread_of_the_chases_core_does_not_stream() -> None:
    threads = {0: (0, 2), 2: (0, 2), 1: (1, 3), 3: (1, 3)}
    (one,) = pairs_of([0, 1, 2, 3], places(dict.fromkeys(range(4), 0), threads))
    assert one.stream_cpus == (1, 3)
    far = pairs_of([0, 1], places({0: 0, 1: 1}))
    assert [pair.stream_cpus for pair in far] == [(1,), (0,), (1,), (0,)], "its node has no other"
    (alone,) = pairs_of([0], places({0: 0}))
    assert alone.stream_cpus == ()


def test_each_core_alone_is_measured_with_the_memory_of_each_node() -> None:
    """Of other nodes' memory by the curve's traffic only."""
    found = pairs_of([0, 1, 2, 3], places({0: 0, 1: 0, 2: 1, 3: 1}))
    given = params(cores=[0], kinds="read,triad", rates=[50])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "topology", lambda: places({0: 0, 1: 0, 2: 1, 3: 1}))
        patch.setattr(MemoryLoadParams, "resolved_cores", lambda _: [0, 1, 2, 3])
        made = measure.configurations(given, found, ["read", "triad"], [[1]] * 4)
    alone = {(found[one.pair].memory_node, one.cpus, one.kind) for one in made
             if one.what == "bandwidth" and len(one.cpus) == 1}  # fmt: skip
    reads = {(node, (cpu,), "read") for node in (0, 1) for cpu in range(4)}
    assert alone == reads | {(0, (0,), "triad"), (0, (1,), "triad"), (1, (2,), "triad"),
                             (1, (3,), "triad")}  # fmt: skip


def test_waits_hide_behind_what_a_burst_takes_anyway() -> None:
    assert delays_of([100], 50.0, 60.0, 0.25) == [0]
    found = delays_of([10, 50, 90], 50.0, 10.0, 0.25)
    assert found == sorted(found, reverse=True)


# --- what is planned -----------------------------------------------------------------------------


def test_a_memory_policy_is_refused() -> None:
    with pytest.raises(UserError, match="memory_policy: 'interleave' decides where memory comes"):
        experiment.plan(params(memory_policy="interleave"))


def test_another_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(UserError, match="are written for x86-64 and aarch64, and this is riscv64"):
        experiment.plan(params())


def test_lines_of_another_size_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    wide = [Cache(1, "data", 64 << 10, 4, 256, 64, (0,))]
    monkeypatch.setattr("perflib.machine.hardware.caches.caches", lambda: wide)
    with pytest.raises(UserError, match="cache lines of 64 bytes, and this processor's have 256"):
        experiment.plan(params())


# --- trials --------------------------------------------------------------------------------------


class FakeArrays:
    """A chase of 1 ms slices that takes 100 ns a load."""

    def __init__(self, why: str = "") -> None:
        self.why, self.placed = why, 0

    def __contains__(self, _: object) -> bool:
        return self.placed > 0

    def place(self, _key: object, **_requested: Any) -> str:
        self.placed += 1
        return ""

    def release(self, _key: object) -> None: ...

    def run(self, _key: object, cpu: int, _warm: int, loads: int, repeats: int) -> Any:
        found = np.zeros(repeats, SAMPLE)
        found["loads"], found["cpu"] = loads, cpu
        times = found["sample"]
        times["start_ns"] = 1_000_000 * np.arange(repeats)
        times["time_ns"] = times["cpu_time_ns"] = 100 * loads
        return found, self.why


class FakeStreams:
    """Cores that move 10 GB/s each and had so much of their time."""

    def __init__(self, share: float = 1.0, late: str = "", wrong: str = "", at_work: bool = True
                 ) -> None:  # fmt: skip
        self.share, self.late, self.wrong, self.at_work = share, late, wrong, at_work
        self.cores = 0

    def __contains__(self, _: object) -> bool:
        return True

    def begin(self, _key: object, cpus: Any, _kind: str, **_requested: Any) -> str:
        self.cores = len(cpus)
        return self.late

    def end(self, windows: Any = ()) -> Any:
        accounts = np.zeros((len(windows), self.cores), ACCOUNT)
        for place, (low, high) in enumerate(windows):
            accounts["bytes"][place] = 10 * (high - low) if self.at_work else -1
            accounts["cpu_time_ns"][place] = self.share * (high - low)
        results = np.zeros(self.cores, [(f"{name}_ns", "i8") for name in
                                        ("probe_before", "probe_after", "chain_before",
                                         "chain_after")])  # fmt: skip
        return accounts, results, self.wrong


PAIR = Pair(0, 0, 0, 0, (1, 2))


def trial(
    configuration: LoadConfiguration, streams: Any = None, arrays: Any = None
) -> pd.DataFrame:
    arrays, streams = arrays or FakeArrays(), streams or FakeStreams()
    made = LoadTrials(
        arrays, streams, [PAIR], [configuration],
        nodes={0: None}, array_bytes=MIB, backing="4k", loads=1000, trial_ms=0.1, repeats=3, seed=1,
    )  # fmt: skip
    return pd.DataFrame(made.take(0, 0))


def test_in_their_caches_cores_use_no_bandwidth() -> None:
    frame = trial(LoadConfiguration(0, "latency", (1,), "read", "cache", 0.0))
    assert frame["bandwidth_gb_s"].tolist() == [0.0] * 3


def test_a_trial_goes_on_until_cores_had_their_time_but_not_for_ever() -> None:
    one = LoadConfiguration(0, "latency", (1,), "read", "memory")
    assert len(trial(one)) == 3
    starved = trial(one, streams=FakeStreams(share=0.5))
    assert len(starved) == 12
    assert starved["repeat"].tolist() == list(range(12))


def test_a_core_that_was_not_at_work_has_no_share() -> None:
    frame = trial(
        LoadConfiguration(0, "latency", (1,), "read", "memory"), streams=FakeStreams(at_work=False)
    )
    assert frame["core_share"].tolist() == [0.0] * 12
    assert frame["ok"].all(), "the analysis judges it"


@pytest.mark.parametrize("what", ["latency", "bandwidth"])
@pytest.mark.parametrize("fault", [FakeStreams(late="late"), FakeStreams(wrong="wrong")])
def test_what_fails_is_marked(what: str, fault: FakeStreams) -> None:
    frame = trial(LoadConfiguration(0, what, (1,), "read", "memory"), streams=fault)
    assert len(frame)
    assert not frame["ok"].any()
    experiment.check_samples(frame.assign(round=0))


# --- real runs, tiny -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PERFLIB_HOME", str(tmp_path_factory.mktemp("run")))
        patched.setenv("PERFLIB_PROGRESS", "none")
        stop = threading.Event()

        def progress(status: Any) -> None:
            if status.rounds >= 4:  # however long they take: every kind was visited
                stop.set()

        return experiment.measure(params(cores=CPUS[:2], budget_s=600.0), progress, stop)


def test_a_run_has_every_rate_and_set_of_cores_and_can_be_analysed(run: Run) -> None:
    frame = run.samples
    assert set(frame["what"]) == {"latency", "bandwidth"}
    wanted = {"idle", "cache", "memory"} if len(CPUS) > 1 else {"idle", "memory"}
    assert set(frame["load"]) == wanted
    assert set(frame["kind"]) == {"read", "triad"}
    bandwidth = frame[frame["what"] == "bandwidth"]
    assert {str(cpu) for cpu in CPUS[:2]} <= set(bandwidth["streams"])
    assert len(run.provenance["kernels"]) == 2
    found = experiment.analyse(run)
    assert {one.of.name for one in found} >= {"latency_rises", "knee"}, "whatever else runs here"
    for one in found:
        assert one.plain
    made = {name: table() for name, table in experiment.derived(run).items()}
    assert made.keys() == experiment.tables.keys()
    assert len(made["curve"])


def test_one_core_is_measured_and_says_what_stays_open() -> None:
    made = experiment.measure(params(cores=[CPU], rates=[10, 50]))
    assert any("one core only" in sentence for sentence in made.provenance["problems"])
    (rise,) = [one for one in experiment.analyse(made) if one.of.name == "latency_rises"]
    assert rise.verdict == "inconclusive"
    assert set(made.samples["load"]) == {"idle", "memory"}


@needs_two_cores
def test_the_kernel_finds_waits_for_rates() -> None:
    given = params(cores=CPUS[:2])
    made = experiment.plan(given)
    found = experiment.pilot(given, made)
    waits = [one.delay for one in found["configurations"] if one.rate_percent == 50]
    assert waits
    assert all(wait >= 0 for wait in waits)


def test_a_core_that_cannot_be_used_ends_the_pilot() -> None:
    class Refusing(FakeStreams):
        def begin(self, *_: Any, **__: Any) -> str:
            return "a core cannot be used"

    with pytest.raises(MeasurementError, match="a core cannot be used"):
        calibrate_delays(Refusing(), 0, [1], "read", [50])  # type: ignore[arg-type]


def test_memory_that_is_elsewhere_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Streams, "place", lambda *_, **__: "only 3 of 4 pages are on node 0")
    with pytest.raises(MeasurementError, match="memory of node 0 is not where it should be"):
        experiment.measure(params())


def test_a_worker_that_dies_costs_its_trial_and_threads_die_with_it() -> None:
    with Arrays(params().conditions(None)) as arrays, Streams(params().conditions(None)) as streams:
        pair = Pair(0, 0, CPU, CPU, (CPUS[-1],))
        one = LoadConfiguration(0, "bandwidth", (CPUS[-1],), "read", "memory")
        made = LoadTrials(
            arrays, streams, [pair], [one], nodes={CPU: None}, array_bytes=MIB, backing="4k",
            loads=1000, trial_ms=0.1, repeats=2, seed=1,
        )  # fmt: skip
        made.take(0, 0)
        assert streams.begin(0, (CPUS[-1],), "read", limit_s=60.0) == ""
        pid = streams[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerError):
            streams.end([(0, 1)])
        assert not Path(f"/proc/{pid}").exists()
        assert pd.DataFrame(made.take(1, 0))["ok"].all(), "placed again"


# --- figures -------------------------------------------------------------------------------------


def test_figures_of_one_core_and_of_two_nodes() -> None:
    assert experiment.figures(run_of(samples(4, cores=1))).keys() == set(experiment.plots)
    one = samples(5, queue)
    other = one.assign(memory_node=1, latency_ns=one["latency_ns"] * 1.4)
    both = run_of(pd.concat([one, other], ignore_index=True))
    assert len(experiment.figures(both)["bandwidth"].axes) == 2
    assert len(experiment.derived(both)["summary"]()) == 2


def test_where_arrays_lie_is_verified() -> None:
    with Streams(params().conditions(None)) as streams:
        as_: dict[str, Any] = {"array_bytes": MIB, "backing": "4k", "cpu": CPU}
        home = topology().cpu(CPU).node or 0
        assert streams.place("here", node=home, **as_) == ""
        seen = streams.place("elsewhere", node=home + 1000, **as_)
        assert streams.problems or "pages are on node" in seen


@needs_two_cores
def test_each_pair_of_nodes_is_measured_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes by name: a core on each, so each is loaded by the other."""
    pretended = places({CPUS[0]: 0, CPUS[1]: 1})
    monkeypatch.setattr(measure, "topology", lambda: pretended)
    made = experiment.measure(params(cores=CPUS[:2], budget_s=0.5))
    assert made.samples["ok"].all()
    summary = experiment.derived(made)["summary"]()
    pairs = summary[["memory_node", "core_node"]].to_numpy().tolist()
    assert pairs == [[0, 0], [0, 1], [1, 0], [1, 1]]
    bandwidth = experiment.derived(made)["bandwidth"]()
    alone = bandwidth[bandwidth["kind"] == "read"]
    cells = set(alone[["memory_node", "core_node", "streams"]].itertuples(index=False, name=None))
    every = {(memory, core, str(CPUS[core])) for memory in (0, 1) for core in (0, 1)}
    assert cells <= every, "a busy machine has time for fewer rounds"
    assert cells
    rises = [one for one in experiment.analyse(made) if one.of.name == "latency_rises"]
    assert [one.about["cpu"] for one in rises] == [CPUS[0], CPUS[1]] * 2
    assert len(experiment.figures(made)) == 2
