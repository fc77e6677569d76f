from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.kv_per_core.measure import KernelTrials, chunks_of
from perflib.kernels import build
from perflib.machine.settings import changes
from perflib.measure.conditions import Conditions
from perflib.model.errors import MeasurementError, UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.store.run_files import runs
from tests.experiments.judged import by_subject, codes, made_run
from tests.experiments.simulated import samples

KV = get("kv_per_core")


def findings(table: pd.DataFrame, **params: Any) -> dict[str, Finding]:
    return by_subject(KV.analyse(made_run(KV, table, **params)))


# --- analysis: simulated machines --------------------------------------------------------------


def test_a_slow_core_is_named_and_no_other() -> None:
    found = findings(samples(slow={2: 0.12}))
    assert [f.subject for f in found.values() if f.verdict == "supported"] == ["cpu2"]
    assert found["cpu2"].low < 12 < found["cpu2"].high
    assert found["cpu2"].evidence["events_slower_share"] == 1.0
    assert [one.code for one in found["cpu2"].reasons][:2] == ["every_segment", "all_events"]
    assert found["cpu2"].plain.startswith("cpu2 is slower than the others: 12")


@pytest.mark.parametrize("seed", range(5))
def test_null_two_equal_cores_are_not_distinguished(seed: int) -> None:
    found = findings(samples(seed, cores=2, rounds=150))
    assert not [f for f in found.values() if f.verdict == "supported"]
    assert found["cpu0"].verdict == "refuted"


def test_null_bursts_are_interference_and_not_slowness() -> None:
    found = findings(samples(cores=2, rounds=300, burst_share={0: 0.3}))
    assert found["cpu0"].verdict == "refuted"
    assert found["cpu0 interference"].verdict == "supported"
    assert found["cpu1 interference"].verdict == "refuted"


def test_a_slowdown_below_the_threshold_is_refuted_and_above_it_supported() -> None:
    table = samples(slow={0: 0.03}, noise=0.005, rounds=100)
    assert findings(table)["cpu0"].verdict == "supported"
    assert findings(table, threshold_percent=5.0)["cpu0"].verdict == "refuted"


def test_what_stays_open_says_how_long_a_run_would_decide_it() -> None:
    """The half-width of a run of that length is below the distance to the threshold."""
    enough = []
    for seed in range(12):
        unsteady: dict[str, Any] = {"cores": 3, "noise": 0.3, "burst_share": {0: 0.1}}
        short = findings(samples(seed, rounds=30, slow={1: 0.05}, **unsteady))["cpu1"]
        numbers = {one.code: one.numbers for one in short.reasons}
        if "wanted" not in numbers:
            continue
        wanted = numbers["wanted"]
        rounds = round(30 * wanted["wanted_s"] / wanted["lasted_s"])
        if rounds <= 400:  # for the test's own time
            longer = findings(samples(99 - seed, rounds=rounds, slow={1: 0.05}, **unsteady))["cpu1"]
            enough.append((longer.high - longer.low) / 2 < abs(short.effect - 1.0))
    assert np.mean(enough) > 0.8
    assert len(enough) > 4
    near = samples(slow={1: 0.02}, cores=2, rounds=8)
    assert (
        findings(near, threshold_percent=findings(near)["cpu1"].effect)["cpu1"].reasons[1].code
        == "too_close"
    )


def test_time_without_the_core_is_said_to_be_sharing() -> None:
    table = samples(cores=2, rounds=100, slow={1: 0.06}, noise=0.005)
    table["cpu_time_ns"] = table["time_ns"] * np.where(table["cpu"] == 1, 1 / 1.06, 1.0)
    table["involuntary_switches"] = 0
    assert "the core is shared, not slow" in findings(table)["cpu1"].reason
    table["cpu_time_ns"] = table["time_ns"]
    assert "the core itself" in findings(table)["cpu1"].reason


def test_probes_that_see_one_state_must_be_equally_long_or_nothing_follows() -> None:
    table = samples(cores=2, rounds=20, events=5)
    for ratio, code in ((1.0, "unclassified"), (1.1, "probes_differ")):
        probe_ns = np.where(table["cpu"] == 1, 4000 * ratio, 4000)
        found = findings(table.assign(probe_before_ns=probe_ns, probe_after_ns=probe_ns))
        assert codes(found["cpu1"])[-1] == code
    assert found["cpu1"].reasons[-1].numbers == {"difference": pytest.approx(10)}


def test_events_missing_on_one_core_do_not_make_it_fast() -> None:
    table = samples(cores=2, rounds=100, noise=0.01)
    gone = table["cpu"].eq(1) & table["event"].gt(9) & (table["round"] % 2 == 0)
    found = findings(table[~gone])
    assert found["cpu1"].verdict == "refuted"
    assert abs(found["cpu1"].effect) < 1


def test_two_runs_of_equal_machines_do_not_differ_and_of_unequal_do() -> None:
    first, same = (made_run(KV, samples(1, noise=0.005, drift=0.0)) for _ in range(2))
    assert {f.subject: f.verdict for f in KV.compare(first, same)}["time per event"] == "refuted"
    slower = same.samples.assign(time_ns=same.samples["time_ns"] * 1.2)
    other = KV.compare(first, made_run(KV, slower))
    assert other[0].verdict == "supported"
    assert other[0].low < 20 < other[0].high
    moved = made_run(KV, same.samples.assign(event=same.samples["event"] + 1000))
    with pytest.raises(UserError, match="no event in common"):
        KV.compare(first, moved)


def test_runs_of_an_earlier_schema_are_read_by_their_old_names() -> None:
    old = {"turn_ms": 100.0, "disturbed_percent": 5.0}
    run = Run("r", KV.name, old, samples(cores=2))
    assert KV.current(run).params["interference_percent"] == 5.0
    assert {finding.subject for finding in KV.analyse(run)} >= {"cpu0", "cpu0 interference"}


def test_the_pilot_measures_with_the_journal_open_and_the_settings_in_force(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = []
    pilot, settings = KV.pilot, changes.settings

    @contextlib.contextmanager
    def recorded(wanted: dict[str, str]) -> Iterator[Any]:
        with settings(wanted) as changed:
            order.append("settings")
            yield changed

    def watched(params: Any, plan: Any) -> dict[str, Any]:
        order.append("pilot" if list((home / "runs").glob("*.journal")) else "no journal")
        return pilot(params, plan)

    monkeypatch.setattr(changes, "settings", recorded)
    monkeypatch.setattr(KV, "pilot", watched)
    KV.measure(KV.Params.make({"budget_s": 0.2, "events": 3}))
    assert order == ["settings", "pilot"]


# --- the schedule ------------------------------------------------------------------------------


def test_chunks_hold_every_event_once_in_trials_of_about_the_length_asked() -> None:
    times_ms = [1.0] * 50 + [40.0] + [1.0] * 49
    chunks = chunks_of(times_ms, 7, 20.0)
    events = [event for first, count in chunks for event in range(first, first + count)]
    assert events == list(range(7, 107))
    assert len(chunks) > 3
    assert chunks_of([5.0], 3, 100.0) == [[3, 1]]
    assert chunks_of([0.1] * 10, 0, 100.0) == [[0, 10]]
    assert chunks_of([10.0] * 6, 0, 20.0) == [[0, 2], [2, 2], [4, 2]]


# --- measuring, for real -----------------------------------------------------------------------


def test_a_short_run_measures_all_events() -> None:
    run = KV.measure(KV.Params.make({"budget_s": 1.0, "events": 10}))
    table = run.samples
    allowed = os.sched_getaffinity(0)
    assert set(table["cpu"]) <= allowed
    assert set(table["event"]) == set(range(10))
    assert table["ok"].all()
    assert (table["time_ns"] > 0).all()
    assert (table["cpu_time_ns"] <= table["time_ns"] * 1.5 + 1e6).all()


def test_the_job_as_a_program_gives_the_same_table() -> None:
    run = KV.measure(KV.Params.make({"budget_s": 1.0, "events": 5, "job": "program"}))
    assert set(run.samples["event"]) == set(range(5))
    assert (run.samples["time_ns"] > 0).all()
    cores = run.provenance["plan"]["cores"]
    assert run.samples["cpu"].nunique() == len(cores)
    assert [c["obtained"]["cpus"] for c in run.provenance["conditions"]] == [[cpu] for cpu in cores]


def test_any_job_with_a_log_takes_its_place() -> None:
    script = (
        "for i in $(seq {first} $(({first} + {events} - 1))); do echo begin $i; "
        "for j in 1 2 3; do :; done; echo end $i after 0.0$i s; done"
    )
    run = KV.measure(
        KV.Params.make(
            {
                "budget_s": 0.5,
                "events": 3,
                "first_event": 4,
                "job": "command",
                "job_command": f"sh -c '{script}'",
                "job_begin": r"^begin (?P<event>\d+)",
                "job_end": r"^end (?P<event>\d+) after (?P<seconds>[\d.]+) s",
            }
        )
    )
    by_event = run.samples.groupby("event")["time_ns"].first()
    assert 4 in by_event  # on a busy machine the budget ends before the last one's turn
    logged = {4: 0.04e9, 5: 0.05e9, 6: 0.06e9}
    assert by_event.to_dict() == pytest.approx({event: logged[event] for event in by_event.index})


def test_a_job_that_fails_says_so_and_leaves_no_run() -> None:
    params = KV.Params.make({"job": "command", "job_command": "sh -c 'echo sorry; exit 3'"})
    with pytest.raises(MeasurementError, match=r"status 3(.|\n)*sorry"):
        KV.measure(params)
    assert runs() == []


def test_a_core_that_computes_wrongly_is_reported_and_its_samples_are_not_used() -> None:
    cpu = min(os.sched_getaffinity(0))
    with KernelTrials(build("kv", copies=1), [Conditions(cpu=cpu)], 1, 250.0) as trials:
        _, found = trials.pilot(range(4))
        trials.expect(found, 0)
        assert all(trials.take(0, range(4))["ok"])
        assert trials.violated == []
        found["checksums"][2] += 1
        trials.expect(found, 0)
        taken = pd.DataFrame(trials.take(0, range(4)))
        assert set(taken["event"][~taken["ok"]]) == {2}
        assert set(taken["event"][taken["ok"]]) == {0, 1, 3}
        assert set(taken["expected"].dropna()) == {f"{found['checksums'][2]:#x}"}
        assert set(taken["found"].dropna()) == {f"{found['checksums'][2] - 1:#x}"}
        assert (taken["found"].isna() == taken["ok"]).all()
        assert f"cpu{cpu} computed events [2] differently" in trials.violated[0]


@pytest.mark.parametrize("broken", [None, 0, 2])
def test_a_pilot_core_that_always_computes_wrong_is_outvoted(
    broken: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are timed, and the wrong core is the finding; of three healthy ones nothing is."""
    cpu = min(os.sched_getaffinity(0))
    with KernelTrials(build("kv", copies=1), [Conditions(cpu=cpu)] * 3, 1, 250.0) as trials:
        if broken is not None:
            call = trials[broken].call

            def wrongly(*given: Any, **more: Any) -> Any:
                code, outs = call(*given, **more)
                arrays = [one.copy() for one in outs]
                arrays[0]["checksum"] ^= np.uint64(1 << 7)
                return code, arrays

            monkeypatch.setattr(trials[broken], "call", wrongly)
        _, found = trials.pilot(range(4))
        trials.expect(found, 0)
        rows = [
            pd.DataFrame(trials.take(which, range(4))).assign(cpu=which, round=round_)
            for round_ in range(3) for which in range(3)
        ]  # fmt: skip
        with KernelTrials(build("kv", copies=1), [Conditions(cpu=cpu)], 1, 250.0) as one:
            assert found["checksums"] == one.pilot(range(4))[1]["checksums"]
    table = pd.concat(rows, ignore_index=True)
    assert (table["ok"] == (table["cpu"] != broken)).all()
    said = KV.analyse(made_run(KV, table))
    wrong = [(one.subject, one.verdict) for one in said if one.of.name == "core_wrong"]
    assert wrong == ([] if broken is None else [(f"cpu{broken} wrong", "supported")])
    timed = {one.about["cpu"] for one in said if one.of.name == "slower"}
    assert timed == {0, 1, 2} - {broken}


def test_an_event_s_slices_have_the_same_steps_in_every_trial_and_are_all_there() -> None:
    cpu = min(os.sched_getaffinity(0))
    with KernelTrials(build("kv", copies=1), [Conditions(cpu=cpu)], 1, 100.0) as trials:
        _, found = trials.pilot(range(5))
        trials.expect(found, 0)
        first, second = (pd.DataFrame(trials.take(0, range(5))) for _ in range(2))
    wanted = [-(-steps // found["slice_steps"]) for steps in found["steps"]]
    for taken in (first, second):
        assert taken.groupby("event")["slice"].count().tolist() == wanted
        assert (taken.groupby("event")["slice"].max() + 1).tolist() == wanted
        # the probe after a slice is the one before the next
        same = taken["event"].diff().eq(0)
        before, after = taken["probe_before_ns"], taken["probe_after_ns"].shift()
        assert (before[same] == after[same]).all()


def test_a_worker_is_replaced_when_it_is_old_and_has_done_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("perflib.experiments.kv_per_core.measure._LIFE_S", 0.0)
    cpu = min(os.sched_getaffinity(0))
    with KernelTrials(build("kv", copies=1), [Conditions(cpu=cpu)], 1, 250.0) as trials:
        _, found = trials.pilot(range(2))
        trials.expect(found, 0)
        pids = []
        for _ in range(10):
            assert all(trials.take(0, range(2))["ok"])
            pids.append(trials[0].pid)
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [4, 4, 2]
