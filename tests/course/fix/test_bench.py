"""Real code is timed: what comes out has its shape, whatever this machine is doing."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from perflib.course.fix import bench as module
from perflib.course.fix.bench import Bench
from perflib.course.fix.building import CodeError, shipped
from perflib.course.fix.compare import LEAST_BATCHES
from perflib.course.fix.problems import get
from perflib.machine.hardware.topology import topology
from perflib.measure.schedule import Status
from perflib.model.errors import UserError
from tests.course.fix.edits import edited
from tests.kernels.brackets import check_brackets


def short(name: str, code: str, **more: object) -> Bench:
    """As short as a comparison can be."""
    return module.bench(get(name), code, budget_s=0.1, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def null() -> Bench:
    return short("aliased_buffers", shipped(get("aliased_buffers")))


def check(found: Bench, threads: int) -> None:
    samples = found.samples
    assert found.verdict in {"faster", "slower", "no difference", "not known"}
    assert found.stopped == "budget spent"
    assert samples["batch"].nunique() == LEAST_BATCHES
    assert set(samples["version"]) == {0, 1}
    per_trial = samples.groupby(["batch", "round", "version"]).size()
    assert per_trial.nunique() == 1
    assert (samples["time_ns"] > 0).all()
    assert (samples["calls"] >= 1).all()
    assert (samples["partner_cpu"] == -2).all() == (threads == 1)
    for value in (*found.saved_percent, *found.times_as_fast):
        assert math.isfinite(value) or found.verdict == "not known"
    assert found.saved_percent.low <= found.saved_percent.high or found.verdict == "not known"
    assert repr(found).startswith(f"{found.problem}: ")
    assert found.provenance["original"]["flags"] == found.provenance["yours"]["flags"]


def test_the_same_code_is_timed_against_itself(null: Bench) -> None:
    check(null, 1)
    table = null.samples
    for _, batch in table.groupby("batch"):
        records = batch.sort_values("start_ns")
        fields = ["start_ns", "time_ns", "cpu_time_ns", "run_delay_ns", "throttled_ns"]
        fields += [
            f"{kind}_{when}_ns" for kind in ("probe", "chain") for when in ("before", "after")
        ]
        filled = records[fields].fillna(-1).astype("int64")
        check_brackets(filled.to_records(index=False))
    orders = table.groupby(["batch", "round", "version"])["position"].first().unstack()
    assert (orders.sum(axis=1) == 1).all()
    assert orders[0].nunique() == 2  # at random


@pytest.mark.skipif(len(topology().allowed_cpus()) < 2, reason="two cores are needed")
@pytest.mark.parametrize("name", ["event_loop_lock", "false_sharing"])
def test_two_threads_are_timed_together(name: str) -> None:
    found = short(name, shipped(get(name), "mended"))
    check(found, 2)
    cpus = found.provenance["cpus"]
    assert len(set(cpus)) == 2
    assert set(found.samples.loc[found.samples["ok"], "partner_cpu"]) == {cpus[1]}


def test_figure_and_times_come_from_the_samples(null: Bench) -> None:
    times = null.times()
    assert list(times.columns) == ["batch", "version", "call_ns"]
    assert len(times) == 2 * LEAST_BATCHES
    figure = null.figure()
    left, right = figure.axes
    drawn = np.concatenate([np.asarray(points.get_offsets())[:, 0] for points in left.collections])
    np.testing.assert_allclose(np.sort(drawn), np.sort(times["call_ns"]))
    assert right.get_title(loc="left") == null.verdict


def test_an_interrupted_bench_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    code = shipped(get("aliased_buffers"))

    def interrupt(after: int) -> None:
        def stop(status: Status) -> None:
            if status.rounds == after:
                raise KeyboardInterrupt

        found = module.bench(get("aliased_buffers"), code, budget_s=60, progress=stop)
        assert found.stopped == "interrupted"
        assert found.samples["batch"].nunique() == after

    monkeypatch.setattr(module, "_LEAST_S", 0.01)
    monkeypatch.setattr(module, "_MOST_S", 0.01)
    interrupt(LEAST_BATCHES)
    with pytest.raises(KeyboardInterrupt):
        interrupt(2)


# --- mistakes -------------------------------------------------------------------------------------


def only_timed(what: str) -> str:
    """Code that does something for the input of the timing alone."""
    body = "  const uint32_t *next = c->next;"
    timed = "steps == 1024 && first == 0 && next[0] != 7"
    return edited("aliased_buffers", (body, f"{body}\n  if ({timed}) {{ {what} }}"))


def test_code_that_fails_only_while_it_is_timed_is_reported() -> None:
    crashes = only_timed("abort();")
    with pytest.raises(CodeError, match=r"while it is timed: it crashes \(SIGABRT"):
        short("aliased_buffers", crashes)
    endless = only_timed("for (;;) c->rank[0] = 1;")
    with pytest.raises(CodeError, match=r"does not end: no answer within 3 s"):
        short("aliased_buffers", endless, patience_s=3.0)
    with pytest.raises(CodeError, match="does not compile"):
        short("aliased_buffers", "int x;\n")


def test_numbers_out_of_range_are_named() -> None:
    code = shipped(get("aliased_buffers"))
    for name in ("budget_s", "precision_percent", "threshold_percent"):
        for value in (0, -1.0, math.inf, math.nan, True):
            with pytest.raises(UserError, match=name):
                module.bench(get("aliased_buffers"), code, **{name: value})  # type: ignore[arg-type]
    with pytest.raises(UserError, match="less than 100"):
        module.bench(get("aliased_buffers"), code, threshold_percent=100)


def test_cores_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    code = shipped(get("false_sharing"))
    first = topology().allowed_cpus()[0]
    for cpus in ([first, first], [first, 9999], [first] * 3, []):
        with pytest.raises(UserError, match=r"cpus=|two"):
            module.bench(get("false_sharing"), code, cpus=cpus)
    one = SimpleNamespace(allowed_cpus=lambda: [first], one_per_core=lambda: [first])
    monkeypatch.setattr(module, "topology", lambda: one)
    with pytest.raises(UserError, match="validated here, and timed where there are two"):
        module.bench(get("false_sharing"), code)
