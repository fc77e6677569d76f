"""Mysteries on recorded machines: exercises that were recorded are judged by how they were made."""

from __future__ import annotations

import pytest

import perflib as pl
from perflib.course.mystery import RecordedMystery, mystery
from perflib.course.mystery.causes import NOTHING
from perflib.course.mystery.recorded import CASES
from perflib.framework import recordings
from perflib.model.errors import UserError

ALL = [(name, place) for name, cases in CASES.items() for place in range(len(cases))]


def opened(seed: int, recorded: str) -> RecordedMystery:
    made = mystery(seed, "hard", recorded=recorded)
    assert isinstance(made, RecordedMystery)
    return made


@pytest.mark.parametrize(("recorded", "seed"), ALL)
def test_every_case_is_recorded_and_found_in_its_run(recorded: str, seed: int) -> None:
    assert recorded in recordings.machines()
    _, cause, place, percent = CASES[recorded][seed]
    with opened(seed, recorded) as machine:
        run = pl.experiment("kv_per_core").run(preset="quick", recorded=recorded, tag=machine.tag)
        assert run.provenance["tag"] == machine.tag
        claim = "quota" if cause == "quota" else "taken"
        taken = {one.about["cpu"]: one for one in run.findings.where(claim=claim)}
        most = max(taken.values(), key=lambda one: float(one.effect))
        if cause == NOTHING:
            assert most.verdict == "refuted"
            low, high = 0.0, float(most.high)
        else:
            assert most.verdict == "supported"
            low, high = float(most.low), float(most.high)
        assert bool(run.findings.where(claim="quota")) == (cause == "quota")
        if place:
            assert place == f"cpu{most.about['cpu']}"
        verdict = machine.answer(cause, place, low, high)
        assert verdict.right, verdict
        assert verdict.truth is not None
        assert verdict.truth.size.effect == percent
        assert machine.truth == verdict.truth
        assert cause in str(machine.truth)
        assert machine.causes["here"][cause] == "possible"
        with pytest.raises(UserError, match="the first answer counts"):
            machine.answer(cause)


def test_it_is_no_live_machine() -> None:
    machine = opened(0, "intel-guest")
    assert machine.job == {}
    assert repr(machine) == "mystery 0, recorded on intel-guest"
    assert "needs a Linux machine" in machine.causes["here"]["lock"]
    with pytest.raises(UserError, match="shown after the answer"):
        _ = machine.truth
    assert machine.answer("lock", "output_lock", 1, 2).points == 0
    assert repr(machine).endswith("answered (0 points)")


def test_where_no_exercise_was_recorded_all_calls_work_and_nothing_is_judged() -> None:
    with opened(7, "numa2-guest") as machine:
        assert machine.tag is None
        assert "needs a Linux machine" in repr(machine)
        assert machine.causes["here"][NOTHING] == "possible"
        verdict = machine.answer("thief", "cpu1", 1, 2)
        assert (verdict.points, verdict.right, verdict.truth) == (0, False, None)
        assert "needs a Linux machine" in repr(verdict)
        assert "needs a Linux machine" in verdict._repr_html_()
        assert "needs a Linux machine" in str(machine.truth)
        machine.close()
