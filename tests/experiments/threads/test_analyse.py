"""Verdicts of threads: what is claimed of a job with known locks, and not of one without."""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd
import pytest

from perflib.experiments.threads import experiment
from perflib.experiments.threads.claims import LIMITING
from perflib.experiments.threads.table import LONG_WAIT_S
from perflib.model.finding import Finding
from tests.experiments.judged import by_subject, codes, made_run
from tests.experiments.threads.thread_samples import SHARES, samples


def found(frame: pd.DataFrame, **params: Any) -> dict[str, Finding]:
    findings = by_subject(experiment.analyse(made_run(experiment, frame, **params)))
    for finding in findings.values():
        assert finding.of in experiment.claims
        for text in (finding.claim, finding.plain, finding.reason):
            assert "{" not in text
        finding.to_dict()
        assert finding.low <= finding.high or not math.isfinite(finding.low)
    return findings


def verdicts(findings: dict[str, Finding], *subjects: str) -> list[str]:
    return [findings[subject].verdict for subject in subjects]


def test_each_version_has_its_verdicts() -> None:
    findings = found(samples(cost=0.01, off=0.01, rounds=80))
    for version in ("Initial", "ROOT", "CMSSW I", "Final"):
        assert verdicts(
            findings,
            f"{version} under the profile",
            f"{version} concurrency over speed-up",
            f"{version} waits compared with the self-report",
            f"{version} run-queue delay",
        ) == ["supported", "supported", "supported", "refuted"]
    limiting = findings["Initial limiting lock"]
    assert limiting.verdict == "supported"
    assert limiting.claim.startswith("formula_lock costs the threads of Initial more than 2 %")
    assert limiting.evidence["point"] == "formula"
    assert limiting.reasons[0].numbers == {"first": 80, "profiles": 80}
    assert codes(limiting) == ["first", "next"]  # measured without it: that decides
    assert limiting.kind == "anomaly"
    assert limiting.plain.startswith("formula_lock limits Initial: it costs the threads")
    without = findings["Initial without formula"]
    assert without.verdict == "supported"
    assert without.effect == pytest.approx(100 * SHARES["formula"], abs=1)
    assert codes(without) == ["clear", "predicted"]
    assert "% at most" in without.reason
    assert findings["Initial without checksum"].verdict == "refuted"
    assert findings["Final gains beyond the bound"].verdict == "supported"
    assert verdicts(findings, "Initial concurrency", "Final concurrency") == [
        "refuted",
        "supported",
    ]
    order = findings["order of versions"]
    assert (order.verdict, order.effect) == ("supported", 1.0)
    assert findings["Initial serial part"].verdict == "refuted"


def test_the_null_test_claims_nothing() -> None:
    """Without points, and the same version twice: no lock, no gain, no order."""
    same = {"none": (), "formula": ("formula",), "again": ("formula",)}
    findings = found(samples(versions=same, shares={"formula": 0.0}, rounds=30))
    for version in same:
        assert verdicts(
            findings,
            f"{version} limiting lock",
            f"{version} run-queue delay",
            f"{version} serial part",
        ) == ["refuted", "refuted", "refuted"]
        assert findings[f"{version} under the profile"].verdict == "supported"
    assert findings["none limiting lock"].of is LIMITING
    assert codes(findings["none limiting lock"]) == ["excluded", "no_wait", "rare"]
    assert findings["formula without formula"].verdict == "refuted"
    assert findings["order of versions"].verdict == "inconclusive"
    assert findings["order of versions"].reasons[0].numbers["clear"] == 0


def test_equal_versions_are_ordered_in_one_of_twenty_runs_at_most() -> None:
    """Two versions that are the same: their order is claimed in one of twenty runs at most."""
    same: dict[str, tuple[str, ...]] = {"one": (), "other": ()}
    claimed = [
        found(samples(seed, versions=same, rounds=10))["order of versions"].verdict
        for seed in range(20)
    ]
    assert sum(verdict != "inconclusive" for verdict in claimed) <= 2


def test_a_costly_profile_is_refuted() -> None:
    findings = found(samples(cost=math.log(1.5)))
    assert findings["Final under the profile"].verdict == "refuted"
    assert findings["Final under the profile"].evidence["alone_s"][0] < 0.8
    wide = found(samples(cost=0.045, noise=0.2, rounds=6))
    assert wide["Final under the profile"].verdict == "inconclusive"


def test_a_profile_that_is_too_pessimistic_is_found_out() -> None:
    findings = found(samples(pessimism=0.5))
    one = findings["Final concurrency over speed-up"]
    assert one.verdict == "refuted"
    assert one.effect == pytest.approx(-50, abs=3)
    assert codes(one) == ["excluded", "both", "pessimistic"]
    bold = found(samples(versions={"Initial": ("formula",)}, pessimism=1.3))
    assert codes(bold["Initial concurrency over speed-up"])[-1] == "not_all_gained"
    shared = found(samples(pessimism=0.5, ready=0.2))["Final concurrency over speed-up"]
    assert shared.reasons[-1].code == "delayed"
    assert shared.reasons[-1].numbers["share"] == pytest.approx(20, abs=1)


def test_waits_that_differ_from_the_self_report_are_refuted() -> None:
    findings = found(samples(off=-0.3))
    one = findings["Initial waits compared with the self-report"]
    assert one.verdict == "refuted"
    assert one.effect == pytest.approx(-30, abs=2)
    assert "class_lock" not in one.evidence["apart_percent"]  # too short to count
    short = found(samples(versions={"Final": ("output",)}, shares={"output": 0.01}))
    assert short["Final waits compared with the self-report"].verdict == "inconclusive"
    nothing = found(samples(versions={"none": ()}))
    assert "none waits compared with the self-report" not in nothing


def test_no_wait_refutes_only_where_one_could_have_been_seen() -> None:
    """Wrong once: refuted without an interval, after one round and with lost events as well."""
    none: dict[str, tuple[str, ...]] = {"none": ()}

    def limiting(**given: Any) -> Finding:
        return found(samples(versions=none, **given))["none limiting lock"]

    seen = limiting(rounds=12)
    assert seen.verdict == "refuted"
    assert (seen.effect, seen.low) == (0.0, 0.0)
    frame = samples(versions=none, rounds=12)
    seen_s = frame.loc[frame["configuration"] == "profiled", "running_s"].sum()
    three = -math.log(0.05)  # the rule of three: more than so many would have shown
    assert seen.high == pytest.approx(100 * three * LONG_WAIT_S / seen_s, rel=1e-3)
    assert limiting(rounds=24).high == pytest.approx(seen.high / 2, rel=0.1)
    once = limiting(rounds=1)
    assert (once.verdict, codes(once)[0]) == ("inconclusive", "no_interval")
    lost = limiting(rounds=12, lost=3)
    assert (lost.verdict, codes(lost)) == ("inconclusive", ["lost_events", "no_wait"])
    assert math.isnan(lost.high)
    short = found(samples(versions=none, rounds=12), cost_percent=0.1)["none limiting lock"]
    assert (short.verdict, codes(short)[0]) == ("inconclusive", "open")
    frame = samples(versions=none, rounds=12)
    frame["unknown_s"] = 0.1 * frame["running_s"]
    unknown = found(frame)["none limiting lock"]
    assert unknown.verdict == "inconclusive"
    assert unknown.high == pytest.approx(100 * 0.1 / 1.1, abs=1)


def test_waits_and_gains_at_their_limits_are_rarely_refuted() -> None:
    """The profile is off by just as much as it may be; points gain just what they may."""
    version = {"Initial": ("formula", "interface", "output", "queue")}
    refuted = {"waits compared with the self-report": 0, "gains beyond the bound": 0}
    for seed in range(30):
        frame = samples(seed, versions=version, off=0.05, rounds=8, spill=-0.05)
        findings = found(frame, cost_percent=0.001)
        for subject in refuted:
            refuted[subject] += findings[f"Initial {subject}"].verdict == "refuted"
    assert max(refuted.values()) <= 4


def test_two_locks_that_cost_the_same_are_not_distinguished() -> None:
    shares = {**SHARES, "formula": 0.1, "queue": 0.1}
    one = found(samples(shares=shares))["Initial limiting lock"]
    assert one.verdict == "inconclusive"
    assert codes(one)[0] == "others_alike"


def test_a_condition_variable_may_be_want_of_work() -> None:
    frame = samples()
    frame["locks"] = frame["locks"].str.replace('"mutex"', '"condition"')
    frame = frame[~frame["configuration"].str.startswith("without")]
    one = found(frame)["Initial limiting lock"]
    assert one.verdict == "inconclusive"
    assert codes(one)[0] == "work"


def test_a_lock_is_found_behind_a_condition_that_idle_threads_wait_on() -> None:
    frame = samples()
    idle = {"idle": {"kind": "condition", "waiting_s": 5.0, "ready_s": 0.0, "waits": 9}}
    frame["locks"] = [
        json.dumps({**idle, **json.loads(text)}) if isinstance(text, str) else text
        for text in frame["locks"]
    ]
    frame["limiting"] = frame["limiting"].where(frame["limiting"].isna(), "idle")
    one, plain = found(frame)["Initial limiting lock"], found(samples())["Initial limiting lock"]
    assert one.verdict == plain.verdict == "supported"
    assert one.evidence["lock"] == plain.evidence["lock"]


def test_waiting_that_moves_elsewhere_gains_less_than_the_bound() -> None:
    findings = found(samples(spill=0.9, rounds=40))
    assert findings["Initial without formula"].effect == pytest.approx(2.5, abs=1.5)
    assert findings["Initial without formula"].evidence["bound_percent"][0] > 20
    assert findings["Initial gains beyond the bound"].verdict == "supported"


def test_a_gain_beyond_the_bound_is_found_out() -> None:
    """A profile that saw a third of the waits bounds too low."""
    findings = found(samples(off=-0.67, rounds=40))
    assert findings["Initial gains beyond the bound"].verdict == "refuted"
    assert findings["Initial gains beyond the bound"].facts["point"] == "formula"


def test_run_queue_delay_is_distinguished_from_waiting() -> None:
    frame = samples(ready=0.2)
    few = found(frame.assign(cpus=1))["Final run-queue delay"]
    assert few.verdict == "supported"
    assert few.effect == pytest.approx(20, abs=1)
    assert few.reasons[-1].code == "too_many_threads"
    assert few.reasons[-1].numbers == {"threads": 2, "cpus": 1}
    assert codes(found(frame)["Final run-queue delay"])[-1] == "others_took"
    assert found(frame)["Final limiting lock"].effect == pytest.approx(4, abs=0.5)


def test_spinning_is_said_where_it_is_seen() -> None:
    frame = samples(versions={"Final": ("output",)})
    assert "Final spinning" not in found(frame)
    frame["spinning_s"] = 0.3 * frame["running_s"]
    assert found(frame)["Final spinning"].verdict == "supported"


def test_one_round_decides_nothing() -> None:
    findings = found(samples(rounds=1))
    assert {one.verdict for subject, one in findings.items() if "without" in subject} == {
        "inconclusive"
    }
    assert findings["Initial limiting lock"].verdict == "inconclusive"


def test_a_running_job_has_findings_without_calibration() -> None:
    frame = samples(versions={"the job": ("formula", "output")}, rounds=12)
    frame = frame[frame["configuration"] == "profiled"].assign(
        round=0, self_report=None, serial_begin_s=None, serial_end_s=None
    )
    findings = found(frame, job="running", job_pid=1)
    assert set(findings) == {
        "the job concurrency", "the job limiting lock", "the job run-queue delay",
    }  # fmt: skip
    assert findings["the job limiting lock"].verdict == "supported"
    assert findings["the job limiting lock"].evidence["lock"] == "formula_lock"


def test_samples_without_a_profile_still_tell_what_points_cost() -> None:
    frame = samples(rounds=30)[["version", "configuration", "round", "threads", "job_time_s"]]
    findings = found(frame)
    assert findings["Initial without formula"].verdict == "supported"
    assert codes(findings["Initial without formula"]) == ["clear"]
    assert not any("limiting" in subject for subject in findings)
