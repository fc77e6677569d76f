"""Whole experiments in a guest: what takes several nodes, or a third core, and a run to compare."""

from __future__ import annotations

import pytest

from perflib import experiments
from perflib.experiments.core_pairs.claims import GROUPS
from perflib.experiments.core_pairs.coherence.claims import AT_ONCE
from perflib.experiments.core_pairs.coherence.names import USUAL_STATES, WITH_THIRD
from tests.numa.layouts import Layout

EVENTS = 3


def test_kv_runs_here(layout: Layout) -> None:
    if len(layout.distances) > 2:
        pytest.skip("one guest is enough: it takes a while")
    kv = experiments.get("kv_per_core")
    # On a busy host a round takes longer than 8 s.
    given = {"budget_s": 40.0, "precision_percent": 100.0, "cores": [0]}
    params = kv.Params.make({"events": EVENTS, **given})
    run = kv.measure(params)
    assert set(run.samples["event"]) == set(range(EVENTS))
    assert run.provenance["machine"]["hypervisor"]


def test_coherence_prepares_states_by_a_third_core(layout: Layout) -> None:
    """Which cores take part, what their lines hold, and what is said: times mean nothing here."""
    coherence = experiments.get("coherence")
    params = coherence.Params.make(
        {
            "cores": "all", "at_once": 2, "lines": 8, "control_lines": 16, "exchanges": 20,
            "repeats": 3, "protocols": ["cas_one_line"], "budget_s": 20.0,
        }
    )  # fmt: skip
    run = coherence.measure(params)
    cores = set(range(len(layout.nodes)))
    used = run.samples[run.samples["ok"] & (run.samples["control"] == "")]
    assert (used["proven"] == 1).all()
    assert set(used["state"]) - {""} == set(USUAL_STATES), "all states can be made with four cores"
    pairs = {(owner, requester) for owner in cores for requester in cores - {owner}}
    for state in WITH_THIRD:
        mine = used[used["state"] == state]
        assert set(zip(mine["owner_cpu"], mine["requester_cpu"], strict=True)) == pairs
        for row in mine.itertuples():
            assert row.third_cpu in cores - {row.owner_cpu, row.requester_cpu}
    assert (used.loc[~used["state"].isin(WITH_THIRD), "third_cpu"] == -1).all()
    assert (used["at_once"] <= 2).all()
    assert {GROUPS, AT_ONCE} <= {found.of for found in coherence.analyse(run)}
