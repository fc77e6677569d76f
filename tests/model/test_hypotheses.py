"""Hypotheses: shares are covered as claimed, verdicts are rarely wrong, newest runs decide."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from perflib.model.claims import EXPLAINS
from perflib.model.finding import Finding
from perflib.model.hypotheses import judge, ledger, ledger_lines, standing, unseen
from perflib.model.run import Run
from tests.model.made import slower
from tests.stats.simulated import at_least, at_most

Floats = NDArray[np.float64]
WHAT = "the extra time of core 8 with large code"
HOW = "what 2 MiB pages save"


def judged(extra: Any, contribution: Any, **changed: Any) -> Finding:
    arrays = (np.asarray(values, dtype=np.float64) for values in (extra, contribution))
    return judge("iTLB misses", WHAT, *arrays, **{"threshold_percent": 1.0, "how": HOW, **changed})


EXTRA = np.array([9.1, 9.9, 9.4, 8.8, 9.6, 9.2, 9.5, 9.3])
NOISE = np.array([0.2, -0.1, 0.1, -0.2, 0.1, 0.0, -0.1, 0.0])
NOTHING = np.array([0.3, -0.2, 0.1, 0.0, -0.3, 0.2, 0.1, -0.1])


# --- the verdict -------------------------------------------------------------------------------


def test_a_cause_of_nearly_all_is_supported() -> None:
    finding = judged(EXTRA, 0.9 * EXTRA + NOISE, evidence={"pages": 512})
    assert finding.verdict == "supported"
    assert finding.of is EXPLAINS
    assert finding.about == {"cause": "iTLB misses", "explains": WHAT}
    assert finding.subject == "hypothesis: iTLB misses"
    assert finding.claim == f"more than 50 % of {WHAT} comes from iTLB misses"
    assert finding.unit == "percent of the extra time"
    assert finding.effect == pytest.approx(90, abs=0.5)
    assert 88 < finding.low < finding.effect < finding.high < 92
    assert [one.code for one in finding.reasons] == ["share"]
    assert finding.reason.startswith("The extra time is 9.3")
    assert finding.reason.endswith(" of the run time. What 2 MiB pages save.")
    known = finding.evidence
    assert known["pages"] == 512
    assert known["explains"] == WHAT
    assert known["how"] == HOW
    assert known["blocks"] == 8
    assert known["share_percent"] == [finding.effect, finding.low, finding.high]
    assert known["extra_percent"][0] == pytest.approx(EXTRA.mean())
    assert known["contribution_percent"][0] == pytest.approx((0.9 * EXTRA + NOISE).mean())
    json.dumps(finding.to_dict(), allow_nan=False)


def test_an_upper_bound_refutes_and_never_supports() -> None:
    much = judged(EXTRA, 0.9 * EXTRA + NOISE, bound="upper")
    assert much.verdict == "inconclusive"
    assert much.reasons[0].code == "only_bound"
    assert judged(EXTRA, 0.1 * EXTRA + NOISE, bound="upper").verdict == "refuted"


def test_a_lower_bound_supports_and_never_refutes() -> None:
    little = judged(EXTRA, 0.1 * EXTRA + NOISE, bound="lower")
    assert little.verdict == "inconclusive"
    assert little.reasons[0].code == "only_bound"
    assert judged(EXTRA, 0.9 * EXTRA + NOISE, bound="lower").verdict == "supported"
    nothing = judged(0.01 * EXTRA, 0.0001 * EXTRA, bound="lower")
    assert nothing.verdict == "refuted"  # there is nothing to explain


@pytest.mark.parametrize("contribution", [0.1 * EXTRA + NOISE, 0.0008 * EXTRA, -2 + NOISE])
def test_a_cause_of_little_is_refuted(contribution: Floats) -> None:
    finding = judged(EXTRA, contribution)
    assert finding.verdict == "refuted"
    assert finding.high < 12
    assert finding.reasons[0].code == "share"


def test_half_of_it_is_undecided() -> None:
    finding = judged(EXTRA, 0.5 * EXTRA + 3 * NOISE)
    assert finding.verdict == "inconclusive"
    assert finding.low < 50 < finding.high
    assert finding.reasons[0].code == "open"
    least = judged(EXTRA, 0.5 * EXTRA + 3 * NOISE, most_percent=30)
    assert least.verdict == "supported"
    assert least.claim == f"more than 30 % of {WHAT} comes from iTLB misses"


def test_more_than_all_of_it_is_reported() -> None:
    finding = judged(EXTRA, 1.5 * EXTRA + NOISE)
    assert finding.verdict == "supported"
    assert [one.code for one in finding.reasons] == ["share", "more_than_all"]


def test_nothing_to_explain_refutes_with_the_bound() -> None:
    finding = judged(NOTHING, NOTHING)
    assert finding.verdict == "refuted"
    assert finding.reasons[0].code == "nothing_to_explain"
    assert "below 1 %" in finding.reason
    assert finding.unit == "percent of the run time"
    assert finding.effect == pytest.approx(NOTHING.mean())
    assert "nan" not in str(finding)
    assert all(math.isnan(value) for value in finding.evidence["share_percent"])


@pytest.mark.parametrize("mean", [0.0, 0.9, 1.1, 1.5])
def test_extra_time_that_is_not_established_leaves_it_open(mean: float) -> None:
    """Near zero Fieller's interval has no ends: the share may be anything."""
    finding = judged(mean + 8 * NOTHING, 0.1 * NOTHING)
    assert finding.verdict == "inconclusive"
    assert finding.reasons[0].code == "not_established"
    assert finding.unit == "percent of the run time"


def test_one_number_has_no_interval() -> None:
    finding = judged([9.5], [9.0])
    assert finding.verdict == "inconclusive"
    assert finding.reasons[0].code == "one_block"
    assert "9.50 % of the run time" in finding.reason
    assert (finding.effect, math.isnan(finding.low)) == (9.0, True)


@pytest.mark.parametrize(
    ("extra", "contribution"),
    [([], []), ([math.nan] * 3, [1.0] * 3), ([1.0, math.nan], [math.nan, 1.0])],
)
def test_no_block_at_all(extra: list[float], contribution: list[float]) -> None:
    finding = judged(extra, contribution)
    assert finding.verdict == "inconclusive"
    assert finding.reasons[0].code == "no_block"
    assert finding.evidence["blocks"] == 0


def test_a_block_counts_when_both_numbers_are_there() -> None:
    extra = np.append(EXTRA, [math.nan, 500.0, math.inf])
    contribution = np.append(0.9 * EXTRA + NOISE, [500.0, math.nan, 1.0])
    whole, holed = judged(EXTRA, 0.9 * EXTRA + NOISE), judged(extra, contribution)
    assert holed == whole


def test_what_cannot_be_seen_is_inconclusive() -> None:
    finding = unseen("frequency", WHAT, "there is no cycle counter here")
    assert (finding.verdict, finding.reason) == ("inconclusive", "There is no cycle counter here.")
    assert finding.evidence["explains"] == WHAT
    assert finding.to_dict()["effect"] is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: judged([1.0, 2.0], [1.0]),
        lambda: judged([[1.0]], [[1.0]]),
        lambda: judged(EXTRA, EXTRA, threshold_percent=0.0),
        lambda: judged(EXTRA, EXTRA, threshold_percent=math.nan),
    ],
)
def test_a_programmers_mistakes(wrong: Callable[[], Finding]) -> None:
    with pytest.raises(ValueError, match="must be"):
        wrong()


NUMBERS = st.floats(-1e6, 1e6) | st.just(math.nan)


@given(blocks=st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12))
def test_any_numbers_get_a_verdict(blocks: list[tuple[float, float]]) -> None:
    table = np.array(blocks, dtype=np.float64).reshape(-1, 2)
    finding = judged(table[:, 0], table[:, 1])
    if finding.unit == "percent of the extra time":
        assert finding.low <= finding.effect <= finding.high
        assert finding.evidence["extra_percent"][1] > 1
    else:
        assert finding.verdict != "supported"


# --- by simulation -----------------------------------------------------------------------------


def resembling(generator: np.random.Generator, blocks: int, memory: float) -> Floats:
    """Noise of size 1; each block resembles the one before."""
    steps = generator.normal(0, 1, blocks)
    for n in range(1, blocks):
        steps[n] = memory * steps[n - 1] + math.sqrt(1 - memory**2) * steps[n]
    return steps


def simulated(extra: float, share: float, blocks: int, memory: float, runs: int) -> list[Finding]:
    """Half of what moves the extra time moves the part as well: the two are correlated."""
    generator = np.random.default_rng(blocks)
    findings = []
    for _ in range(runs):
        shared = 1.5 * resembling(generator, blocks, memory)
        own = 0.6 * resembling(generator, blocks, memory)
        findings.append(judged(extra + shared, share * (extra + 0.5 * shared) + own))
    return findings


@pytest.mark.parametrize("blocks", [8, 16])
@pytest.mark.parametrize("memory", [0.0, 0.3])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_is_covered(blocks: int, memory: float, share: float) -> None:
    runs = 300
    findings = simulated(6.0, share, blocks, memory, runs)
    with_share = [finding for finding in findings if finding.unit == "percent of the extra time"]
    covered = sum(finding.low <= 100 * share <= finding.high for finding in with_share)
    assert len(with_share) > 0.98 * runs
    assert covered >= at_least(len(with_share), 0.92)
    supported = sum(finding.verdict == "supported" for finding in findings)
    refuted = sum(finding.verdict == "refuted" for finding in findings)
    if share == 0.5:
        assert supported <= at_most(runs, 0.05)
        assert refuted <= at_most(runs, 0.05)
    else:
        assert (supported if share > 0.5 else refuted) > 0.95 * runs, "and it has power"
        assert (refuted if share > 0.5 else supported) == 0


@pytest.mark.parametrize("memory", [0.0, 0.3])
@pytest.mark.parametrize("extra", [0.0, 1.0])
def test_without_extra_time_no_cause_is_supported(extra: float, memory: float) -> None:
    """At the threshold itself it may be taken for established in one of twenty."""
    for blocks in (2, 8):
        findings = simulated(extra, 1.0, blocks, memory, 200)
        supported = sum(finding.verdict == "supported" for finding in findings)
        assert supported <= at_most(200, 0.05)


# --- the ledger --------------------------------------------------------------------------------


def run(name: str, day: int, host: str = "vm", fingerprint: str = "f00d") -> Run:
    start = f"2026-11-{day:02d}T07:45:07.123+00:00"
    machine = {"hostname": host, "fingerprint": fingerprint}
    run_id = f"{name}-202611{day:02d}-074507-1a2b"
    return Run(run_id, name, {}, pd.DataFrame(), {"start": start, "machine": machine})


OTHER = slower(1, "supported", 3.0, 1.0)
MISSES = judged(EXTRA, 0.9 * EXTRA + NOISE)


@pytest.mark.parametrize("order", [1, -1])
def test_the_newest_run_of_an_experiment_decides(order: int) -> None:
    entries = [
        (run("code_segment", 3), [MISSES]),
        (run("code_segment", 5), [unseen("iTLB misses", WHAT, "Later.")]),
        (run("code_segment", 6), [OTHER]),  # judged nothing, and supersedes nothing
        (run("random_calls", 1), [MISSES]),
    ]
    table = ledger(entries[::order])
    assert list(table["run"].str[:21]) == ["random_calls-20261101", "code_segment-20261105"]
    assert list(table["verdict"]) == ["supported", "inconclusive"]
    assert "machine" not in table


def test_machines_are_kept_apart() -> None:
    entries = [
        (run("code_segment", 3, "node1"), [MISSES]),
        (run("code_segment", 4, "node2"), [MISSES]),
        (run("code_segment", 5, "node2", "beef"), [MISSES]),
    ]
    table = ledger(entries)
    assert list(table["machine"]) == ["node1", "node2 (beef)", "node2 (f00d)"]
    assert "measured 2026-11-03 on node1" in " ".join(ledger_lines(table, 200))


def test_nothing_is_an_empty_ledger() -> None:
    for entries in ([], [(run("counters", 1), [OTHER])]):
        table = ledger(entries)
        assert table.empty
        assert "hypothesis" in table
        assert standing(entries) == []
        assert list(ledger_lines(table)) == []


def test_a_table_that_a_user_brought_has_no_provenance() -> None:
    table = ledger([(Run("mine", "code_segment", {}, pd.DataFrame()), [MISSES])])
    assert list(table["measured"]) == [""]
