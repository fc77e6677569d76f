"""Several classes of events in one run: each is compared by itself, and all are corrected for."""

from __future__ import annotations

import pandas as pd

from perflib.experiments import get
from perflib.model.run import Run
from tests.experiments.event_profile.profiles import samples
from tests.experiments.judged import made_run

EVENT = get("event_profile")


def run_of(**parts: pd.DataFrame) -> Run:
    table = pd.concat([part.assign(event_name=name) for name, part in parts.items()])
    return made_run(EVENT, table.reset_index(drop=True))


def test_a_function_is_found_in_its_class_only() -> None:
    grown = samples(1, rounds=12, costlier={(1, "kv_locate"): 0.4})
    found = EVENT.analyse(run_of(Zee=grown, ttbar=samples(2, rounds=12)))
    verdicts = {one.subject: one.verdict for one in found if one.of.name == "stands_out"}
    assert verdicts["Zee standing out"] == "supported"
    assert verdicts["ttbar standing out"] != "supported"
    assert {one.about["event_name"] for one in found} == {"Zee", "ttbar"}
    (zee,) = (one for one in found if one.subject == "Zee standing out")
    assert zee.plain.startswith("Zee: ")
    assert zee.claim.startswith("of Zee: ")


def test_null_no_class_has_a_function_that_stands_out() -> None:
    named = 0
    for seed in range(12):
        parts = {f"c{n}": samples(100 * seed + n, rounds=8) for n in range(4)}
        found = EVENT.analyse(run_of(**parts))
        named += any(one.of.name == "stands_out" and one.verdict == "supported" for one in found)
    assert named <= 3  # 0.05 of 12 runs are expected: more than 3 in one of 2000 such tests


def test_classes_may_be_called_anything() -> None:
    run = run_of(**{"{0}<b>": samples(1, rounds=4), "{core!r}": samples(2, rounds=4)})
    assert all("{0}<b>" in f.plain or "{core!r}" in f.plain for f in EVENT.analyse(run))
    assert all(EVENT.figures(run).values())
