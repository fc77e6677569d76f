"""Comparisons that travel with perflib, and what the lesson makes of them."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.fix_it import record_of
from perflib.course.fix import fix
from perflib.course.fix.bench import bench
from perflib.course.fix.compare import decided
from perflib.course.fix.problems import NAMES, get
from perflib.course.fix.recorded import recorded_bench
from perflib.course.items import Measured
from perflib.course.lesson import declared
from perflib.course.lessons.fix_it import _changed, _least, _saved
from perflib.framework.recordings import machines
from perflib.model.errors import UserError
from perflib.stats.interval import NO_INTERVAL

MACHINE = "intel-guest"
WAYS = [(name, way) for name in NAMES for way in ("mended", *get(name).others)]


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_every_solution_was_timed_on_the_recorded_machine(name: str, way: str) -> None:
    assert MACHINE in machines()
    found = recorded_bench(name, MACHINE, way)
    assert found.problem == name
    assert found.verdict in {"faster", "slower", "no difference", "not known"}
    assert found.saved_percent.low < found.saved_percent.effect < found.saved_percent.high
    assert f"recorded on {MACHINE}" in repr(found)
    assert f"solution '{way}'" in repr(found)
    assert set(found.times()["version"]) == {"original", "yours"}
    assert found.figure().get_suptitle().startswith(f"recorded on {MACHINE}, 20")


def test_a_recorded_comparison_is_of_the_solution_that_is_given() -> None:
    problem = fix("page_chase")
    huge = problem.bench(problem.solution("huge"), recorded=MACHINE)
    own = problem.bench(None, recorded=MACHINE)
    assert "solution 'huge'" in repr(huge)
    assert "solution 'mended'" in repr(own)
    assert huge.saved_percent != own.saved_percent
    problem.possible(recorded=MACHINE)
    assert f"As recorded on {MACHINE}" in problem.explanation


def test_a_machine_or_a_solution_without_a_record_is_named() -> None:
    with pytest.raises(UserError, match=MACHINE):
        fix("page_chase").bench(None, recorded="intel-gest")
    with pytest.raises(UserError, match="was not timed"):
        recorded_bench("page_chase", MACHINE, "other")


# --- the lesson -----------------------------------------------------------------------------------


def test_what_a_comparison_saves_is_compared_with_a_prediction() -> None:
    bench = recorded_bench("false_sharing", MACHINE)
    found = _saved(bench)
    assert isinstance(found, Measured)
    assert (found.value, found.low, found.high) == tuple(bench.saved_percent)
    unknown = SimpleNamespace(problem="false_sharing", saved_percent=NO_INTERVAL)
    assert "no interval" in str(_saved(unknown))


def test_the_smallest_saving_is_judged_as_far_as_intervals_allow() -> None:
    benches = {name: recorded_bench(name, MACHINE) for name in NAMES}
    least = min(benches, key=lambda name: benches[name].saved_percent.effect)
    assert _least(least, benches).share == 1
    most = max(benches, key=lambda name: benches[name].saved_percent.low)
    judged = _least(most, benches)
    assert judged.share == 0
    assert "saves less" in judged.says
    with pytest.raises(UserError, match="unknown problem"):
        _least("nothing", benches)


def test_typical_wrong_answers_are_changed_and_wrong() -> None:
    lesson = declared("fix_it")
    for number, name in (
        ("2", "event_loop_lock"),
        ("4", "false_sharing"),
        ("6", "aliased_buffers"),
    ):
        item = lesson.item(number)
        assert item.judge(fix(name).solution()).share == 1
        codes = [code for code, _ in item.wrong]
        assert len(set(codes)) == len(codes)
        for code, why in item.wrong:
            assert item.judge(code).share == 0, why
    assert _changed("false_sharing") == fix("false_sharing").code


def test_a_comparison_is_recorded_as_it_is() -> None:
    found = bench(get("aliased_buffers"), fix("aliased_buffers").code, budget_s=0.1)
    one = json.loads(json.dumps(record_of(found, "mended")))
    assert decided(np.array(one["ratios"])).verdict == found.verdict
    assert len(one["original_ns"]) == len(one["yours_ns"]) == found.samples["batch"].nunique()
