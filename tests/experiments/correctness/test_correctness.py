"""`correctness`: kernels with one fault are named with core and class, and sound ones never."""

from __future__ import annotations

import functools
import math
import os
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib import kernels
from perflib.experiments import get
from perflib.experiments.correctness import CLASSES, measure
from perflib.experiments.correctness.table import count_text, one_in
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.stats.counted import rate
from tests.experiments.correctness.result_samples import NAMES, samples
from tests.experiments.judged import by_subject, codes, made_run, supported

EXPERIMENT = get("correctness")
CPUS = sorted(os.sched_getaffinity(0))
needs_two_cores = pytest.mark.skipif(len(CPUS) < 2, reason="another core is compared with")


def found(seed: int = 1, *given: Any, **shape: Any) -> dict[str, Finding]:
    return judged(samples(seed, *given, **shape))


def judged(table: pd.DataFrame) -> dict[str, Finding]:
    return by_subject(EXPERIMENT.analyse(made_run(EXPERIMENT, table)))


# --- statistics ----------------------------------------------------------------------------------


def test_none_of_n_is_at_most_three_of_n() -> None:
    assert rate(0, 1e9).high == pytest.approx(3e-9, rel=0.01)
    assert rate(7, 7) == pytest.approx((1, 0.59, 1), abs=0.01)


@pytest.mark.parametrize("share", [1e-6, 3e-5])
def test_the_interval_of_a_rate_covers_it(share: float) -> None:
    generator = np.random.default_rng(5)
    covered = 0
    for hits in generator.binomial(1_000_000, share, 400):
        one = rate(int(hits), 1_000_000)
        covered += one.low <= share <= one.high
    assert covered >= 0.95 * 400 - 3 * math.sqrt(400 * 0.05)


def test_counts_are_written_for_readers() -> None:
    assert [count_text(n) for n in (3.12e9, 1e6, 512, 9.99e9)] == [
        "3.1 × 10⁹", "10⁶", "512", "10¹⁰",
    ]  # fmt: skip
    assert (one_in(1e-6), one_in(0)) == ("10⁶", "∞")


# --- simulated -----------------------------------------------------------------------------------


def test_null_nothing_is_named_and_the_limit_is_the_rule_of_three() -> None:
    for seed in range(10):
        said = found(seed, cores=3)
        assert [one.verdict for one in said.values()] == ["refuted"] * 4
        core = said["cpu1"]
        operations = core.evidence["operations"]
        assert core.high == pytest.approx(3e9 / operations, rel=0.01)
        assert f"0 of {count_text(operations)} wrong" in core.plain
        assert "at 95 %" in core.plain


@pytest.mark.parametrize("share", [1.0, 1e-4, 1e-6])
def test_a_core_that_errs_is_named_with_its_class(share: float) -> None:
    named = 0
    for seed in range(10):
        said = found(seed, {(1, "multiply"): share}, rounds=12)
        named += supported(said.values()) == ["cpu1"]
        assert said["cpu0"].verdict == "refuted"
        assert said["cpu1"].evidence["classes"] == ["multiply"]
    assert named >= 9
    assert "computes wrong: multiply" in said["cpu1"].plain
    assert "(bits that differ: 17)" in said["cpu1"].reason


def test_what_happens_only_together_says_so() -> None:
    said = found(2, {(0, "integer"): 1e-4}, only="together")["cpu0"]
    assert re.search(r"integer, 1 in \S+ (× \S+ )?\(only when all cores work\)", said.plain)
    rare = found(3, {(0, "integer"): 1e-6}, only="together", rounds=12)["cpu0"]
    assert "only when" in rare.plain or "seen so far when all cores work" in rare.plain


def spoiled(rows: list[int]) -> pd.DataFrame:
    table = samples(4)
    table.loc[rows, "wrong"] = 1
    return table


def test_null_one_sample_and_two_of_a_round_decide_nothing() -> None:
    """A wrong result is loud, and yet no anomaly before another round has it."""
    for rows in ([5], [3, 5], [3, 9, 15]):
        said = judged(spoiled(rows))["cpu1"]
        assert (said.verdict, codes(said)[0]) == ("inconclusive", "once")
        assert "run longer" in said.reason
    assert supported(judged(spoiled([5, 5 + len(samples()) // 2])).values()) == ["cpu1"]


def test_a_core_whose_software_differs_is_named() -> None:
    table = samples(5, cores=3)
    mine = (table["cpu"] == 2) & (table["class"] == "integer")
    for blocks in (table["block"] < 8, table["block"] >= 8):  # by the table; by the majority
        wrong = table.assign(checksum=table["checksum"].where(~(mine & blocks), "bad"))
        said = judged(wrong)
        assert supported(said.values()) == ["cpu2"]
        assert "What cpu2 expects of integer differs" in said["cpu2"].reason


def test_two_cores_that_disagree_are_both_in_doubt() -> None:
    table = samples(6)
    mine = (table["cpu"] == 1) & (table["block"] >= 8)
    said = judged(table.assign(checksum=table["checksum"].where(~mine, "bad")))
    assert [codes(said[one]) for one in ("cpu0", "cpu1")] == [["disputed"]] * 2


def test_what_is_not_covered_is_named_with_its_reason() -> None:
    plan = {"plan": {"absent": {"gather": "this processor has no AVX2"}}}
    said = by_subject(EXPERIMENT.analyse(made_run(EXPERIMENT, samples(7), plan)))["coverage"]
    assert f"{len(NAMES)} of {len(CLASSES)}" in said.plain
    assert "Gather: this processor has no AVX2." in said.reason.replace("gather", "Gather")


def test_more_wrong_than_there_are_is_refused() -> None:
    table = samples(8)
    with pytest.raises(UserError, match="more wrong results"):
        judged(table.assign(wrong=table["operations"] + 1))


def test_the_tables_and_the_figure_have_all_cores_and_classes() -> None:
    run = made_run(EXPERIMENT, samples(9, {(1, "multiply"): 1e-3}, cores=3))
    made = EXPERIMENT.derived(run)
    assert len(made["limits"]()) == 3 * len(NAMES)
    assert set(made["wrong"]()["bits"]) == {"17"}
    axes = EXPERIMENT.figures(run)["limits"].axes[0]
    assert [one.get_text() for one in axes.get_xticklabels()] == list(NAMES)
    assert [one.get_text() for one in axes.texts] == ["✗"]
    assert set(EXPERIMENT.levels(run)["cpu"]) == {0, 1, 2}


# --- faulty kernels ------------------------------------------------------------------------------


def measured(monkeypatch: pytest.MonkeyPatch, define: dict[str, int], **given: Any) -> Any:
    if define:
        broken = functools.partial(kernels.build, define=define)
        monkeypatch.setattr(measure, "build", broken)
    params = EXPERIMENT.params({"budget_s": 1.5, "classes": ["integer", "multiply"]} | given)
    run = EXPERIMENT.measure(params)
    return run, by_subject(EXPERIMENT.analyse(run))


@needs_two_cores
@pytest.mark.parametrize(
    ("every", "state", "says"),
    [(1, 1, "multiply"), (1_000_000, 1, "multiply"), (1000, 2, "only when all cores work")],
    ids=["always", "one in 10⁶", "together"],
)
def test_a_faulty_kernel_is_named_with_core_and_class(
    monkeypatch: pytest.MonkeyPatch, every: int, state: int, says: str
) -> None:
    cpu, number = CPUS[-1], list(CLASSES).index("multiply")
    fault = {"FAULT_CLASS": number + 2, "FAULT_CORE": cpu + 1}
    define = fault | {"FAULT_EVERY": every, "FAULT_STATE": state}
    run, said = measured(monkeypatch, define, cores=CPUS[:1] + CPUS[-1:], class_ms=8.0)
    assert supported(said.values()) == [f"cpu{cpu}"]
    core = said[f"cpu{cpu}"]
    assert core.evidence["classes"] == ["multiply"]
    assert says in core.plain
    assert "(bits that differ: 17)" in core.reason
    assert said[f"cpu{CPUS[0]}"].verdict == "refuted"
    assert f"cpu{cpu} computed wrong results of the class multiply" in run.provenance["problems"]


def test_null_a_short_run_of_all_classes_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    run, said = measured(monkeypatch, {}, classes="all", budget_s=0.5)
    assert not supported(one for one in said.values() if one.kind == "anomaly")
    assert run.samples["wrong"].sum() == 0
    absent = run.provenance["plan"]["absent"]
    assert set(run.samples["class"]) | set(absent) == set(CLASSES)
    assert set(run.samples["state"]) == {"cold", "warm", "changing", "together"}


# --- bad input -----------------------------------------------------------------------------------


def test_a_processor_without_any_requested_class_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(measure._NUMBERS, "sha", len(CLASSES))  # the kernel has none of it
    with pytest.raises(UserError, match="sha: this processor has no SHA"):
        measured(monkeypatch, {}, classes="sha")
