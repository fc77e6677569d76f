"""A worker and the process behind it: what it answers, how it fails, what is left of it."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perflib import kernels
from perflib.kernels import Build
from perflib.measure import process as process_module
from perflib.measure.conditions import Conditions, environment_bytes, observe
from perflib.measure.process import Out, Served, Worker, WorkerError
from perflib.measure.workers import Workers
from perflib.model.errors import MeasurementError
from perflib.store import paths
from tests.machine import trees
from tests.processes import alive, open_files

HERE = Path(__file__).parents[1] / "kernels_c"
MANY_S = 60.0  # for what should answer at once, on a machine that is busy
CPU = min(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def faulty() -> Build:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "kernels_dir", lambda: HERE)
        return kernels.build("faulty")


@pytest.fixture
def worker(faulty: Build) -> Iterator[Worker]:
    with Worker(faulty, Conditions()) as made:
        yield made


def started(worker: Worker) -> int:
    """The process behind it."""
    worker.start()
    assert worker.pid is not None
    return worker.pid


def result(worker: Worker, function: str, *arguments: Any) -> Any:
    return worker.call(function, *arguments, timeout_s=MANY_S)[0]


# --- answers -----------------------------------------------------------------------------------


def test_results_and_arguments_of_every_kind(worker: Worker) -> None:
    assert result(worker, "faulty_add", 40, -82) == -42
    assert result(worker, "faulty_add", 2**62, 1) == 2**62 + 1
    assert result(worker, "faulty_scale", 1.1, 1e-300) == 1.1 * 1e-300
    assert result(worker, "faulty_scale", math.inf, 1.0) == math.inf
    assert math.isnan(result(worker, "faulty_scale", math.nan, 1.0))
    assert result(worker, "faulty_largest") == 2**64 - 1
    assert worker.call("faulty_nothing", timeout_s=MANY_S) == (None, [])


def test_arrays_go_in_and_come_out(worker: Worker) -> None:
    values = np.random.default_rng(1).normal(size=100_000)
    assert result(worker, "faulty_sum", values, len(values)) == pytest.approx(values.sum())
    assert result(worker, "faulty_sum", values[::2], 50_000) == pytest.approx(values[::2].sum())
    assert result(worker, "faulty_sum", np.zeros(0), 0) == 0
    count, (first, second) = worker.call(
        "faulty_fill", Out("i4", 1000), 1000, Out(np.dtype("f8"), 1000), timeout_s=MANY_S
    )
    assert count == 1000
    assert (first.dtype.name, second.dtype.name) == ("int32", "float64")
    np.testing.assert_array_equal(first, np.arange(1000))
    np.testing.assert_array_equal(second, np.arange(1000) / 2)


def test_calls_of_one_worker_are_answered_in_the_order_in_which_they_were_begun(
    worker: Worker,
) -> None:
    for number in range(5):
        worker.begin("faulty_add", number, 10)
    worker.begin("faulty_fill", Out("i4", 3), 3, Out("f8", 3))
    assert [worker.end(timeout_s=MANY_S)[0] for _ in range(5)] == [10, 11, 12, 13, 14]
    _, (first, _) = worker.end(timeout_s=MANY_S)
    np.testing.assert_array_equal(first, [0, 1, 2])
    with pytest.raises(WorkerError, match="no call was begun"):
        worker.end(timeout_s=MANY_S)


def test_a_call_does_not_take_the_answer_of_one_that_was_begun(worker: Worker) -> None:
    worker.begin("faulty_add", 1, 2)
    with pytest.raises(AssertionError, match="an answer is still to come"):
        result(worker, "faulty_add", 3, 4)
    assert worker.end(timeout_s=MANY_S) == (3, [])
    assert result(worker, "faulty_add", 3, 4) == 7


def test_a_worker_that_dies_takes_with_it_what_was_begun(worker: Worker) -> None:
    worker.begin("faulty_exit", 3)
    worker.begin("faulty_add", 1, 2)
    with pytest.raises(WorkerError, match="exit status 3"):
        worker.end(timeout_s=MANY_S)
    with pytest.raises(WorkerError, match="its worker is gone"):
        worker.end(timeout_s=MANY_S)
    assert result(worker, "faulty_add", 1, 2) == 3, "the next call has a new process"


def test_a_wrong_call_among_those_begun_costs_itself_only(worker: Worker) -> None:
    worker.begin("faulty_ad", 1, 2)
    worker.begin("faulty_add", 1, 2)
    with pytest.raises(WorkerError, match="AttributeError"):
        worker.end(timeout_s=MANY_S)
    assert worker.end(timeout_s=MANY_S) == (3, [])


def test_what_a_kernel_prints_is_no_answer(
    worker: Worker, capfd: pytest.CaptureFixture[str]
) -> None:
    assert result(worker, "faulty_print") == 7
    assert result(worker, "faulty_add", 1, 1) == 2
    assert capfd.readouterr() == ("", "")
    with pytest.raises(WorkerError, match=r'it said:\n{"result": 99}') as caught:
        result(worker, "faulty_exit", 1)
    assert caught.value.exit_code == 1


def test_wrong_calls_are_errors_that_cost_no_process(worker: Worker) -> None:
    result(worker, "faulty_add", 1, 1)
    pid = worker.pid
    with pytest.raises(WorkerError, match=r"kernel 'faulty', faulty_ad\(\): AttributeError"):
        result(worker, "faulty_ad", 1, 2)
    with pytest.raises(WorkerError, match="ValueError"):
        result(worker, "faulty_add", 1)
    with pytest.raises(WorkerError, match="TypeError"):
        result(worker, "faulty_add", 1.5, 2)
    with pytest.raises(WorkerError, match="OverflowError"):
        result(worker, "faulty_add", 2**63, 2)
    assert result(worker, "faulty_add", 1, 2) == 3
    assert worker.pid == pid


@dataclass
class Counting:
    """What a worker serves instead of a kernel: it adds up, and fails when it is asked to."""

    sum: int

    def add(self, numbers: list[int]) -> dict[str, int]:
        self.sum += sum(numbers)
        print(json.dumps({"result": "printed, not answered"}))
        return {"sum": self.sum}

    def fail(self) -> None:
        msg = "as it was asked"
        raise LookupError(msg)

    def leave(self) -> None:
        os._exit(5)

    def __setstate__(self, state: dict[str, int]) -> None:
        self.sum = state["sum"]
        if self.sum < 0:
            msg = "a sum that cannot be"
            raise ValueError(msg)


def test_an_object_of_python_is_served_as_a_kernel_is() -> None:
    with Worker(Served("counting", Counting(10)), Conditions(cpu=CPU)) as worker:
        assert worker.call("add", [1, 2], timeout_s=MANY_S) == ({"sum": 13}, [])
        with pytest.raises(WorkerError, match=r"function 'counting', fail\(\): LookupError: as it"):
            result(worker, "fail")
        assert result(worker, "add", [1]) == {"sum": 14}, "it is the same object"
        assert worker.obtained["cpus"] == [CPU]
        with pytest.raises(WorkerError, match=f"leave, on CPU {CPU}: worker exit status 5"):
            result(worker, "leave")
        assert result(worker, "add", [1]) == {"sum": 11}, "the next call has a new one"
    with (
        Worker(Served("wrong", Counting(-1)), Conditions()) as worker,
        pytest.raises(WorkerError, match=r"(?s)function 'wrong', start.*a sum that cannot be"),
    ):
        worker.start()


# --- crashes, hangs and kills -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        ("faulty_crash", (), ["ended by signal SIGSEGV", "Segmentation fault"]),
        ("faulty_abort", (), ["ended by signal SIGABRT", "Aborted"]),
        ("faulty_exit", (3,), ["exit status 3"]),
    ],
)
def test_crash_costs_that_call_only(
    faulty: Build, function: str, arguments: Any, words: Any
) -> None:
    with Worker(faulty, Conditions(cpu=CPU)) as worker:
        assert [result(worker, "faulty_count_calls") for _ in range(2)] == [1, 2]
        with pytest.raises(WorkerError) as caught:
            result(worker, function, *arguments)
        assert isinstance(caught.value, MeasurementError)
        for word in [f"kernel 'faulty', {function}, on CPU {CPU}: worker", *words]:
            assert word in str(caught.value)
        assert worker.pid is None
        assert result(worker, "faulty_count_calls") == 1, "the next call has a new process"
        assert worker.obtained["cpus"] == [CPU], "with the same conditions"


def test_endless_kernel_is_killed_after_its_time(worker: Worker) -> None:
    pid = started(worker)
    says = r"faulty_hang: no answer within 0\.2 s on any CPU; its worker was killed"
    with pytest.raises(WorkerError, match=says):
        worker.call("faulty_hang", timeout_s=0.2)
    assert not alive(pid)
    assert result(worker, "faulty_add", 1, 2) == 3


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGKILL, "SIGKILL"), (signal.SIGRTMIN + 3, str(signal.SIGRTMIN + 3))],
)
def test_killed_during_a_call(worker: Worker, number: int, name: str) -> None:
    pid = started(worker)
    killer = threading.Timer(0.2, os.kill, (pid, number))
    killer.start()
    says = f"faulty_hang, on any CPU: worker ended by signal {name}"
    with pytest.raises(WorkerError, match=says):
        result(worker, "faulty_hang")
    killer.join()
    assert result(worker, "faulty_add", 1, 2) == 3


def test_interrupted_call_leaves_no_answer_for_the_next(worker: Worker) -> None:
    pid = started(worker)
    interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 (the signal may come before the call)
            interrupt.start()
            worker.call("faulty_sleep", 30.0, timeout_s=MANY_S)
    finally:
        interrupt.cancel()  # else it would end the run of the tests if the call fails at once
    assert not alive(pid)
    assert result(worker, "faulty_add", 1, 2) == 3


def test_library_that_cannot_be_loaded_says_why(faulty: Build, tmp_path: Path) -> None:
    missing = Build("faulty", tmp_path / "gone.so", faulty.module, {})
    with (
        Worker(missing, Conditions()) as worker,
        pytest.raises(WorkerError, match=r"(?s)start, on any CPU: worker exit status 1.*gone\.so"),
    ):
        result(worker, "faulty_add", 1, 2)


def test_nothing_stays_open_or_alive(faulty: Build) -> None:
    before = open_files()
    pids = []
    for _ in range(3):
        worker = Worker(faulty, Conditions())
        worker.start()
        pids.append(worker.pid)
        with pytest.raises(WorkerError):
            result(worker, "faulty_exit", 0)
        with pytest.raises(WorkerError):
            worker.call("faulty_hang", timeout_s=0.05)
        worker.start()
        pids.append(worker.pid)
        worker.kill()
        worker.kill()
    assert open_files() == before
    assert not any(alive(pid) for pid in pids if pid)


MANY_FILES = """
import os, resource, sys
from pathlib import Path
from perflib import kernels
from perflib.measure.conditions import Conditions
from perflib.measure.process import Worker
from perflib.store import paths
paths.kernels_dir = lambda: Path(sys.argv[1])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (1400, hard))
held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1200)]
with Worker(kernels.build("faulty"), Conditions()) as worker:
    print(worker.call("faulty_add", 40, 2, timeout_s=60.0))
"""


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 1400,
    reason="this process may not open as many files as a machine with 400 CPUs needs",
)
def test_as_many_workers_as_a_large_machine_has_cpus() -> None:
    """Three descriptors each: their numbers go beyond what select() can wait for."""
    argv = [sys.executable, "-c", MANY_FILES, str(HERE)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=MANY_S)
    assert done.stdout == "(42, [])\n", done.stderr


# --- conditions --------------------------------------------------------------------------------


def test_pinned_where_it_was_asked_for_and_read_back(faulty: Build) -> None:
    for cpu in sorted(os.sched_getaffinity(0)):
        with Worker(faulty, Conditions(cpu=cpu, environment={"PERFLIB_MARK": "x=y"})) as worker:
            assert os.sched_getaffinity(started(worker)) == {cpu}
            assert worker.obtained["cpus"] == [cpu]
            assert worker.obtained["environment"] == {"PERFLIB_MARK": "x=y"}
            assert worker.violated == []


def test_condition_that_is_not_met_is_a_sentence(
    faulty: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(pid: int, variables: Iterable[str]) -> dict[str, Any]:
        seen = observe(pid, variables)
        return {**seen, "cpus": [0, 1, 2], "scheduler": "OTHER", "fifo_priority": None}

    monkeypatch.setattr(process_module, "observe", elsewhere)
    with Worker(faulty, Conditions(cpu=CPU, fifo_priority=5)) as worker:
        worker.start()
        assert worker.violated[0] == f"CPU: requested {CPU}, may run on [0, 1, 2]."
        assert worker.violated[1].startswith("FIFO priority: requested 5, obtained scheduler OTHER")
        assert result(worker, "faulty_add", 1, 2) == 3, "it is said, and measured all the same"
    with Workers(faulty, [Conditions(cpu=CPU), Conditions(cpu=CPU)]) as several:
        assert several.violated == worker.violated[:1], "each sentence once"


def test_worker_imports_next_to_nothing() -> None:
    """Its imports are part of each start, and of what disturbs the first turn."""
    argv = [sys.executable, "-X", "importtime", "-m", "perflib.measure.worker"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "perflib.kernels" in modules
    heavy = {"numpy", "pandas", "scipy", "duckdb", "pydantic", "cffi", "pycparser", "matplotlib"}
    assert modules.isdisjoint(heavy)


# --- quotas --------------------------------------------------------------------------------------


def test_kernels_learn_where_a_quota_in_force_keeps_its_account(tmp_path: Path) -> None:
    trees.container(tmp_path)
    where = {"PERFLIB_CPU_STAT": str(tmp_path / "sys/fs/cgroup/cpu.stat")}
    assert process_module._cpu_stat(tmp_path) == where
    (tmp_path / "sys/fs/cgroup/cpu.stat").unlink()
    assert process_module._cpu_stat(tmp_path) == {}
    trees.write(tmp_path, {"sys/fs/cgroup/cpu.max": "max 100000"})
    assert process_module._cpu_stat(tmp_path) == {}


def test_an_environment_whose_size_is_requested_is_left_alone(
    faulty: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "_cpu_stat", lambda: {"PERFLIB_CPU_STAT": "/stat"})
    size = environment_bytes(dict(os.environ)) + 4096
    for conditions, set_ in ((Conditions(), True), (Conditions(environment_bytes=size), False)):
        with Worker(faulty, conditions) as worker:
            worker.start()
            block = Path(f"/proc/{worker.pid}/environ").read_bytes()
            assert (b"PERFLIB_CPU_STAT=/stat\0" in block) == set_
            assert worker.violated == []
