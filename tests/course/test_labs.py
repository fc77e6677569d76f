"""The labs: their items, their instructor's notes, the environment check."""

from __future__ import annotations

from typing import Any

import pytest

import perflib as pl
from perflib.course.fix import fix
from perflib.course.items import Relation
from perflib.course.lesson import declared, names
from perflib.course.needs import NEEDS, need
from perflib.course.relations import found, reads, verdict
from perflib.course.worksheet import Lab
from perflib.model.errors import UserError

MACHINE = "intel-guest"
LABS = [
    "tlbs_and_huge_pages", "aliasing_4k", "noise_and_statistics", "slow_core_to_function",
    "caches_and_numa", "threads_waiting", "lines_and_locks",
]  # fmt: skip

# What else a relation's check is given: a recorded run, of an experiment with these parameters;
# or the recorded comparison of changed code.
_NULL = {"together": True, "functions": ["memcpy"], "elements": [2048], "simulated_offsets": []}
_COSTLIER = {"costlier_core": 1, "frequency_hz": 10_000}
_FIX = "false_sharing"
EVIDENCE: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("tlbs_and_huge_pages", "3"): ("code_segment", {}),
    ("tlbs_and_huge_pages", "5"): ("code_segment", {}),
    ("aliasing_4k", "3"): ("alias_map", {}),
    ("aliasing_4k", "5"): ("alias_offsets", {}),
    ("aliasing_4k", "6"): ("alias_offsets", {}),
    ("aliasing_4k", "9"): ("alias_offsets", _NULL | {"tag": "exercise"}),
    ("aliasing_4k", "13"): ("alias_offsets", {}),
    ("noise_and_statistics", "4"): ("kv_per_core", {}),
    ("slow_core_to_function", "1"): ("kv_per_core", {}),
    ("slow_core_to_function", "4"): ("event_profile", {}),
    ("slow_core_to_function", "6"): ("event_profile", _COSTLIER | {"tag": "exercise"}),
    ("caches_and_numa", "3"): ("memory_levels", {}),
    **{("threads_waiting", name): ("threads", {}) for name in ("3", "4", "5", "8")},
    ("threads_waiting", "10"): ("threads", {"versions": ["none"], "tag": "exercise"}),
    ("lines_and_locks", "2"): ("coherence", {}),
    ("lines_and_locks", "5"): (_FIX, {}),
    ("lines_and_locks", "6"): ("coherence", {}),
    ("lines_and_locks", "8"): ("threads", {}),
}


def evidence(of: str, **more: Any) -> Any:
    if of == _FIX:
        return fix(of).possible(recorded=MACHINE)
    return pl.experiment(of).run(preset="quick", recorded=MACHINE, **more)


@pytest.mark.parametrize("lesson", LABS)
def test_a_wrong_relation_earns_nothing_and_says_why(lesson: str) -> None:
    lab = Lab(declared(lesson))
    for item in lab.lesson.items:
        if not isinstance(item, Relation):
            continue
        known = EVIDENCE.get((lesson, item.name))
        given = [evidence(known[0], **known[1])] if known else []
        assert item.wrong, item.name
        for answer, why in item.wrong:
            checked = lab.check(item.name, answer, *given)
            assert checked.points == 0, (item.name, why)
            assert checked.says
            assert checked.hint or checked.says.startswith("unknown")  # which is no try


# --- relations -----------------------------------------------------------------------------------


def test_a_verdict_is_that_of_the_run() -> None:
    run = pl.experiment("code_segment").run(preset="quick", recorded=MACHINE)
    holds = verdict("huge_pages")
    assert holds("refuted", run).share == 1
    assert holds("supported", run).share == 0
    assert verdict("no_such_claim")("inconclusive", run).share == 1
    with pytest.raises(UserError, match="refuted"):
        holds("refutd", run)


def test_what_cannot_be_read_off_is_open() -> None:
    run = pl.experiment("code_segment").run(preset="quick", recorded=MACHINE)
    knee = reads(found("ring_knee", what="the knee"), "KiB")
    assert knee(run.findings.where(claim="ring_knee")[0].effect, run).share == 1
    assert knee("open", run).share == 0
    none = reads(found("no_such_claim", what="nothing"), "KiB")
    assert none("open", run).share == 1
    assert none(7, run).share == 0


# --- the environment check -----------------------------------------------------------------------


def test_every_need_of_every_lesson_is_known_and_looked_for() -> None:
    machine = pl.describe(MACHINE)
    for name in names():
        for wanted in declared(name).needs:
            met, words = need(wanted).look(machine)
            assert met in (True, False, None)
            assert words
    assert all(one.without for one in NEEDS.values())


def test_the_environment_says_what_is_inconclusive() -> None:
    lab = Lab(declared("caches_and_numa"))
    table = lab.environment().set_index("need")
    assert list(table.index) == list(lab.lesson.needs)
    for row in table.to_dict(orient="records"):
        assert (row["here"] == "yes") == (row["inconclusive"] == "–")
    assert lab.environment(MACHINE)["need"].tolist() == ["nothing"]
    with pytest.raises(UserError, match="intel-guest"):
        lab.environment("intel-gest")
