"""The lessons of notebooks 00 to 06: relations that hold on any run, and what a run cannot tell."""

from __future__ import annotations

import dataclasses
import functools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import perflib as pl
from perflib.course.items import Choice, Measured, Prediction, Relation
from perflib.course.lesson import declared
from perflib.course.quota import cpu_quota
from perflib.course.relations import estimated, near, word
from perflib.lab.interface import bound
from perflib.lab.neighbour import busy_neighbour
from perflib.model.errors import UserError
from perflib.store.paths import notebooks_dir
from tests.experiments.memory_levels.memory_samples import run_of
from tests.experiments.memory_levels.test_brackets import busy

MACHINE = "intel-guest"
EXPERIMENTS = {
    "machine": "machine",
    "kv_per_core": "kv_per_core",
    "event_profile": "event_profile",
    "counters": "counters",
    "instruction_cache": "random_calls",
    "code_segment": "code_segment",
    "memory_levels": "memory_levels",
}


@functools.cache
def run(lesson: str, **given: Any) -> Any:
    name = EXPERIMENTS[lesson]
    return pl.experiment(name).run(preset="quick", recorded=MACHINE, **given)


def exercise(lesson: str, budget_s: float) -> Any:
    return run(lesson, budget_s=budget_s, tag="exercise")


def ways() -> Any:
    given: dict[str, Any] = {"patterns": ["chase"], "sizes_kib": [64, 4096], "simulated_sizes": 0}
    given |= {"backings": ["4k", "thp", "collapse"], "budget_s": 4.0, "tag": "exercise"}
    return pl.experiment("code_segment").run(preset="quick", recorded=MACHINE, **given)


def evidence(lesson: str, item: str) -> tuple[Any, ...]:
    """What the notebook's check passes in addition to the answer."""
    if (lesson, item) in {("machine", "3"), ("kv_per_core", "1")}:
        return run(lesson), exercise(lesson, 6.0 if lesson == "machine" else 15.0)
    if (lesson, item) == ("instruction_cache", "1"):
        return (pd.Series({64: 6.1, 512: 1.1, 4096: 0.1}),)
    if (lesson, item) == ("code_segment", "3"):
        return (ways(),)
    if (lesson, item) == ("memory_levels", "4"):
        return run(lesson), run(lesson)
    if (lesson, item) == ("memory_levels", "5"):
        return (run(lesson),)
    return ()


@pytest.mark.parametrize("lesson", EXPERIMENTS)
def test_typical_wrong_answers_earn_less_and_say_why(lesson: str) -> None:
    checked = 0
    for item in declared(lesson).items:
        for answer, why in item.wrong:
            try:
                judged = item.judge(answer, *evidence(lesson, item.name))
            except UserError as error:
                assert len(str(error)) > 20  # noqa: PT017 the sentence is what is tested
                continue
            assert judged.share < 1, (item.name, answer, why)
            assert judged.says
            checked += 1
        if isinstance(item, Choice):
            assert len({item.because[key] for key in item.options}) >= len(item.options) - 1
    assert checked


@pytest.mark.parametrize("lesson", [name for name in EXPERIMENTS if name != "event_profile"])
def test_predictions_are_compared_with_an_interval_or_a_sentence(lesson: str) -> None:
    found = []
    for item in declared(lesson).items:
        if not isinstance(item, Prediction) or item.name in {"with a busy neighbour", "large code"}:
            continue
        measured = item.measured(run(lesson))
        if isinstance(measured, Measured):
            low, value, high = measured.ends
            assert low <= value <= high
            assert math.isfinite(high - low)
            found.append(item.name)
        else:
            assert len(measured) > 20
    assert found


def test_the_prose_of_notebook_05_says_what_the_recorded_run_says() -> None:
    text = (notebooks_dir() / "05_code_segment.ipynb").read_text()
    knee = run("code_segment").findings["knee"]
    assert f"{knee.effect:.0f} KiB [{knee.low:.0f}, {knee.high:.0f}]" in text
    (control,) = run("code_segment").findings.where(claim="huge_pages")
    half = (control.high - control.low) / 2
    assert f"{control.effect:.3f} % ± {half:.3f}" in text


# --- relations -----------------------------------------------------------------------------------


def relation(lesson: str, name: str) -> Relation:
    item = declared(lesson).item(name)
    assert isinstance(item, Relation)
    return item


def test_the_cause_is_the_one_whose_gaps_grew() -> None:
    asked = relation("machine", "3")
    both = evidence("machine", "3")
    assert asked.judge(" Another  TASK ", *both).share == 1
    assert asked.judge("long interrupt", *both).share == 0
    with pytest.raises(UserError, match="another task"):
        asked.judge("anothr task", *both)
    quiet = asked.judge("another task", both[0], both[0])
    assert quiet.share == 1
    assert "no bin grew" in quiet.says


def gaps(cause: str, lost_ms: float) -> Any:
    """A run of the machine on which one cause takes so many ms of each second of cpu1."""
    worst = pd.DataFrame({"cpu": [1], "likely_cause": [cause], "lost_ms_per_s": [lost_ms]})
    return SimpleNamespace(
        samples=pd.DataFrame({"cpu": [0, 1]}), table={"worst_gaps": worst}.__getitem__
    )


def test_a_machine_that_is_full_hides_the_neighbour_from_nobody_who_knows_it() -> None:
    asked, both = relation("machine", "3"), (gaps("throttling", 100), gaps("throttling", 900))
    assert asked.judge("another task", *both).share == 1
    assert "too busy" in asked.judge("throttling", *both).says
    assert asked.judge("interrupt", *both).share == 0


def test_which_functions_cost_most_where_runs_cannot_tell() -> None:
    asked = relation("instruction_cache", "1")
    unknown = pd.Series({64: math.nan, 512: 1.0, 4096: 0.1})
    assert asked.judge(64, unknown).share == 1
    assert "cannot tell" in asked.judge(512, unknown).says
    alike = pd.Series({64: 1.0, 512: 1.1, 4096: 0.1})
    assert (asked.judge(64, alike).share, asked.judge(512, alike).share) == (1, 1)
    assert asked.judge(4096, alike).share == 0
    assert asked.judge(65, alike).share == 0


def test_kinds_of_huge_pages_are_alike_or_open() -> None:
    asked = relation("code_segment", "3")
    assert asked.judge("alike", ways()).share == 1
    assert asked.judge("different", ways()).share == 0
    one = ways()
    one.samples = one.samples[one.samples["backing"] != "collapse"]
    assert asked.judge("open", one).share == 1
    assert asked.judge("alike", one).share == 0


def test_levels_that_show_beside_a_busy_sibling_too_are_compared_as_alone() -> None:
    split = {"L1d": 0.75, "L2": 0.5}
    both = bound(run_of(busy(part=split)))
    levels = both.table("levels")
    assert set(levels.loc[levels["samples"] == "shared", "level"]) == {"L1d", "L2"}
    probes = ["probe_before_ns", "probe_after_ns"]
    blind = dataclasses.replace(both, samples=both.samples.drop(columns=probes))
    judged = relation("memory_levels", "4").judge("none", both, blind)
    assert "without the probes change: L1d by" in judged.says


# --- what they share -----------------------------------------------------------------------------


def test_numbers_and_words() -> None:
    holds = near(2, 3, "right", "wrong")
    assert [holds(answer).share for answer in (1.9, 2, "3", 3.1)] == [0, 1, 1, 0]
    with pytest.raises(UserError):
        holds("two")
    assert word("  A  b ", {"a b": "c"}) == "c"
    with pytest.raises(UserError, match=r"unknown part .d. .all: a b"):
        word("d", {"a b": "c"}, "part")
    assert estimated([], "what", "none") == "none"


def test_where_a_recorded_run_is_given_nothing_is_disturbed() -> None:
    groups = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    with busy_neighbour(None, 0.2), cpu_quota(None):
        assert Path("/proc/self/cgroup").read_text(encoding="utf-8") == groups
    with pytest.raises(UserError), busy_neighbour(None, 2.0):
        pass
