"""Gains by simulated trials: intervals cover, nulls are silent, what others took is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.what_if.table import GainTable, Key
from perflib.model.finding import Finding
from tests.experiments.judged import by_subject, made_run

EXPERIMENT = get("what_if")
FUNCTION, LOCK = Key("function", "f"), Key("lock", "l")


def trials(
    seed: int,
    gains: dict[Key, float],
    *,
    rounds: int = 8,
    noise: float = 0.01,
    others: float = 0.0,
    bias: float = 0.0,
    threads: int = 3,
) -> pd.DataFrame:
    """Trials as ``measure`` makes them; noise has heavy tails, which the intervals do not assume.

    ``gains``: of each target, made 100 % faster. ``others``: the share of trials in which others
    take a core, which makes them up to twice as long. ``bias``: of all predictions, in points.
    """
    generator = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    start_ns = 0
    for round_ in range(rounds):
        level = 0.5 * (1 + 0.2 * round_ / rounds)
        first = next(iter(gains))
        wanted: list[tuple[Key, str, float]] = [(first, "again", 0.0)]
        for target in gains:
            wanted.append((target, "control", 0.0))
            wanted += [(target, way, x) for way in ("virtual", "real") for x in (25.0, 50.0)]
        for position, place in enumerate(generator.permutation(len(wanted))):
            target, way, percent = wanted[place]
            gain = gains[target] * percent / 100 + (bias if way == "virtual" else 0.0)
            time_s = level * (1 - gain / 100) * np.exp(noise * generator.standard_t(4))
            delay_s = 0.3 * percent / 100 * 0.2 * level if way == "virtual" else 0.0
            run_queue_s = 0.0
            if generator.random() < others:
                run_queue_s = time_s * generator.uniform(0.3, 1.0)
                time_s += run_queue_s
            start_ns += int(1e9 * (time_s + delay_s))
            rows.append(
                {
                    "round": round_, "position": position, "target": target.name,
                    "kind": target.kind, "way": way, "speedup_percent": percent,
                    "job_s": time_s + delay_s, "delay_s": delay_s, "target_s": 0.4 * level,
                    "cpu_s": 2 * level, "run_queue_s": run_queue_s, "samples": 1000,
                    "target_samples": 100, "sections": 100, "threads": threads, "cpus": 2,
                    "ticks": False, "start_ns": start_ns, "ok": True,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def found(samples: pd.DataFrame, **params: Any) -> dict[str, Finding]:
    run = made_run(EXPERIMENT, samples, **{"speedups": [25, 50], **params})
    return by_subject(EXPERIMENT.analyse(run))


def test_intervals_cover_the_gain() -> None:
    hits = []
    for seed in range(150):
        table = GainTable(trials(seed, {FUNCTION: 30.0, LOCK: 0.0}))
        for target, true in ((FUNCTION, 15.0), (LOCK, 0.0)):
            gain = table.gain(target, 50.0)
            hits.append(gain.low <= true <= gain.high)
    assert 0.90 <= np.mean(hits) <= 0.99


def test_what_gains_nothing_is_not_said_to_gain() -> None:
    """Null: also where the job's time varies, and where others take the cores."""
    verdicts = []
    for seed in range(40):
        said = found(trials(seed, {FUNCTION: 0.0}, noise=0.03, others=0.2 * (seed % 2)))
        verdicts.append(said["f 50 % faster"].verdict)
    assert verdicts.count("supported") <= 2


def test_a_gain_is_found_and_a_wide_interval_is_silent() -> None:
    said = found(trials(1, {FUNCTION: 40.0}))["f 50 % faster"]
    assert said.verdict == "supported"
    assert "takes less time" in said.plain
    noisy = [
        found(trials(seed, {FUNCTION: 6.0}, noise=0.15, rounds=4))["f 50 % faster"]
        for seed in range(20)
    ]
    silent = [one for one in noisy if one.verdict == "inconclusive"]
    assert len(silent) >= 15
    assert "cannot say" in silent[0].plain.lower()


def test_trials_whose_cores_others_took_are_left_out() -> None:
    samples = trials(3, {FUNCTION: 20.0}, rounds=20, others=0.3)
    table = GainTable(samples)
    assert table.conditioned
    assert 0.15 < table.others_share() < 0.45
    gain = table.gain(FUNCTION, 50.0)
    assert gain.half_width < 2
    assert gain.low <= 10 <= gain.high
    few = GainTable(trials(3, {FUNCTION: 20.0}, rounds=3, others=0.6))
    assert not few.conditioned
    assert few.gain(FUNCTION, 50.0).half_width > 2


def test_more_threads_than_cores_wait_for_cores_by_themselves() -> None:
    samples = trials(4, {FUNCTION: 20.0}, others=1.0, threads=9)
    table = GainTable(samples)
    assert table.conditioned
    assert table.others_share() == 0
    assert "8 threads on 2 cores" in found(samples)["f 50 % faster"].reason


def test_a_wrong_prediction_shows_beside_the_truth() -> None:
    right = found(trials(6, {FUNCTION: 20.0}))["f really faster"]
    wrong = found(trials(6, {FUNCTION: 20.0}, bias=12.0))["f really faster"]
    assert (right.verdict, wrong.verdict) == ("supported", "refuted")
    assert wrong.effect == pytest.approx(12, abs=2)


def test_nothing_is_decided_where_the_control_differs() -> None:
    samples = trials(7, {FUNCTION: 40.0})
    again = samples["way"] == "again"
    samples.loc[again, "job_s"] *= 1.2
    said = found(samples)
    assert said["control"].verdict == "refuted"
    assert said["f 50 % faster"].verdict == "inconclusive"
    assert "differs from itself" in said["f 50 % faster"].reason


def test_one_thread_and_a_target_that_never_runs_are_named() -> None:
    samples = trials(8, {FUNCTION: 20.0}, threads=1)
    samples["target_samples"] = 0
    said = found(samples)
    assert "one thread" in said["f 50 % faster"].reason
    assert "No thread was ever in it" in said["f 50 % faster"].reason
    assert "f by its profile" not in said


def test_a_small_run_holds_what_its_schema_says() -> None:
    if reason := EXPERIMENT.unavailable():
        pytest.skip(reason)
    params = EXPERIMENT.params(
        {"budget_s": 1.0, "events": 6, "functions": ["^item_evaluate$"], "speedups": [50]}
    )
    run = EXPERIMENT.measure(params)
    assert set(run.samples["way"]) == {"control", "again", "virtual", "real"}
    assert run.samples["ok"].all()
    assert (run.samples["delay_s"][run.samples["way"] != "virtual"] == 0).all()
    assert any("child processes" in one for one in run.provenance["problems"])
    assert {one.of.name for one in EXPERIMENT.analyse(run)} >= {"gain", "control", "true"}
