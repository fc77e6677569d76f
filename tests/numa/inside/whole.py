"""The detector simulation in a guest: a run for the machine that booted it to compare with."""

from __future__ import annotations

import pytest

from perflib import experiments
from tests.numa.layouts import Layout

EVENTS = 3


def test_kv_runs_here(layout: Layout) -> None:
    if len(layout.distances) > 2:
        pytest.skip("one guest is enough: it takes a while")
    kv = experiments.get("kv_per_core")
    params = kv.Params.make({"events": EVENTS, "budget_s": 8.0, "cores": [0]})
    run = kv.measure(params)
    assert set(run.samples["event"]) == set(range(EVENTS))
    assert run.provenance["machine"]["hypervisor"]
