"""The final project: its exercises, and the notes for whoever teaches it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflib.course.mystery import mystery
from perflib.course.worksheet import lesson


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path))


def test_a_case_earns_what_its_verdict_says() -> None:
    lab = lesson("mystery")
    with mystery(0, recorded="intel-guest") as machine:
        assert lab.check("case", None, machine).points == 0
        wrong = lab.check("case", {"cause": "thief", "core": 1}, machine)
        assert "an answer has cause, place, low, high and unit" in wrong.says
        assert "answered" not in repr(machine)
        half = lab.check("case", {"cause": "thief", "place": "cpu1"}, machine)
        assert half.points == pytest.approx(0.7 * half.of)
        assert repr(machine).endswith("answered (70 points)")
        again = lab.check("case", {"cause": "thief"}, machine)
        assert again.points == 0
        assert "the first answer counts" in again.says


def test_a_plan_earns_a_part_for_each_suspect() -> None:
    lab = lesson("mystery")
    plan = {"thief": "kv_per_core", "quota": "kv_per_core", "function": "x", "lock": "threads"}
    found = lab.check("plan", plan)
    assert (found.points, found.of) == (1.5, 2)
    assert "look again at function" in found.says
