"""The final project: its exercises, and the notes for whoever teaches it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflib.course.lab import lesson
from perflib.course.lessons.mystery import LESSON
from perflib.course.mystery import mystery
from perflib.course.mystery.causes import CAUSES

DOCS = Path(__file__).parents[3] / "docs"


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


def test_docs_have_every_cause_and_every_wrong_answer() -> None:
    text = (DOCS / "mystery.md").read_text()
    for name in CAUSES:
        assert f"| `{name}` |" in text, name
    notes = (DOCS / "course" / "mystery.md").read_text()
    for item in LESSON.items:
        assert f"| {item.name} | {type(item).__name__.lower()} | {item.points:g} |" in notes
        for _, why in item.wrong:
            assert why in notes, why
