"""A guest compared with its host: simulated machines whose differences are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from perflib.experiments import get
from perflib.experiments.kv_per_core.pair import _divided, pair
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from tests.experiments.simulated import bracketed

KV = get("kv_per_core")
PARTS = ("own speed", "clock", "interrupts", "sibling", "other tasks", "hypervisor")


def machine(name: str, *, pages: str = "default", virtual: bool = False, **given: Any) -> Run:
    """The same events, whatever is given: the same seed draws the same costs."""
    params = KV.Params.make({"huge_pages": pages}).model_dump(mode="json")
    given = {"busy": {0: 0.1, 1: 0.1}, "seconds": 40.0, **given}
    described = {"hypervisor": "kvm" if virtual else None, "microarchitecture": "Zen 4"}
    return Run(name, KV.name, params, bracketed(21, **given), {"machine": described})


def both(value: float) -> dict[int, float]:
    return {0: value, 1: value}


def found(host: list[Run], guest: list[Run]) -> dict[str, Finding]:
    return {one.subject.removeprefix("guest "): one for one in pair(host, guest)}


def test_the_parts_of_a_guest_are_found_and_multiply_to_the_whole() -> None:
    host = machine("host")
    guest = machine(
        "guest", virtual=True, slow=both(0.06), clock=both(0.03), stolen=both(0.05), seconds=60.0
    )
    parts = found([host], [guest])
    assert list(parts) == ["total", *PARTS, "nested paging"]
    own = parts["own speed"]
    assert own.effect == pytest.approx(6, abs=own.high - own.low)  # the ends miss one in twenty
    assert parts["clock"].low < 3 < parts["clock"].high
    assert parts["hypervisor"].low < 100 * 0.05 / 0.95 < parts["hypervisor"].high
    for name in ("own speed", "clock", "hypervisor", "total"):
        assert parts[name].verdict == "supported", name
    for name in ("interrupts", "other tasks"):
        assert parts[name].verdict != "supported", name
    product = math.prod(1 + parts[name].effect / 100 for name in PARTS)
    assert product == pytest.approx(1 + parts["total"].effect / 100, rel=2e-3)


def test_null_a_machine_beside_itself() -> None:
    supported = []
    for share in (0.05, 0.15, 0.2):
        parts = found([machine("a")], [machine("b", busy=both(share), seconds=30.0)])
        supported += [n for n, one in parts.items() if one.verdict == "supported"]
    assert set(supported) <= {"sibling", "total"}  # those differ


def test_nested_paging_is_what_goes_away_with_huge_pages() -> None:
    host = [machine("h4", pages="never", slow=both(0.02)), machine("h2", pages="always")]
    guest = [
        machine("g4", pages="never", slow=both(0.12), virtual=True, seconds=50.0),
        machine("g2", pages="always", slow=both(0.03), virtual=True, seconds=50.0),
    ]
    nested = found(host, guest)["nested paging"]
    assert nested.verdict == "supported"
    assert nested.low < 100 * (1.12 / 1.02 / 1.03 - 1) < nested.high
    alone = found(host[:1], guest[:1])["nested paging"]
    assert alone.verdict == "inconclusive"
    assert "huge_pages=never and with huge_pages=always" in alone.reason


def test_without_probes_parts_that_cannot_be_distinguished_are_one() -> None:
    runs = [machine("host"), machine("guest", virtual=True, slow=both(0.1))]
    for run in runs:
        names = [name for name in map(str, run.samples) if "probe" in name or "chain" in name]
        run.samples = run.samples.drop(columns=names)
    parts = found(runs[:1], runs[1:])
    assert {"clock", "own speed", "sibling"} & set(parts) == set()
    assert parts["own speed, clock or sibling"].effect == pytest.approx(10, abs=2)


def test_the_whole_is_divided_into_what_both_machines_know() -> None:
    every = dict.fromkeys([*PARTS, "own speed or clock"], np.zeros(2))
    for lost, calibrated, first in (
        ("none", True, ["own speed", "clock", "interrupts"]),
        ("clock", True, ["own speed or clock", "interrupts"]),
        ("interrupts", True, ["own speed, clock or sibling", "other tasks"]),
        ("none", False, ["own speed, clock or sibling", "other tasks"]),
        ("hypervisor", False, []),
    ):
        parts = _divided([every, every | {lost: np.full(2, np.nan)}], calibrated=calibrated)
        assert parts[: 1 + len(first)] == ["total", *first]


def test_a_machine_that_was_never_alone_is_not_called_slow() -> None:
    """Its probes see one state: the sibling's share cannot be distinguished from the machine's."""
    parts = found([machine("host")], [machine("guest", virtual=True, busy=both(1.0))])
    assert {"own speed", "own speed or clock"} & set(parts) == set()
    assert parts["own speed, clock or sibling"].effect > 10


def test_two_physical_machines_of_different_kinds_are_no_pair() -> None:
    other = machine("other")
    other.provenance["machine"]["microarchitecture"] = "Haswell"
    reason = found([machine("host")], [other])["total"].reason
    assert "different kinds (Zen 4 and Haswell)" in reason
    assert "virtual one" in reason


def test_runs_that_make_no_pair_are_refused() -> None:
    host, guest = machine("host", seconds=5.0), machine("guest", seconds=5.0)
    other = machine("other", pages="always", seconds=5.0)
    with pytest.raises(UserError, match=r"different huge_pages \(host: default and guest: always"):
        pair([host], [other])
    with pytest.raises(UserError, match="two runs of the guest have huge_pages=default"):
        pair([host], [guest, guest])
    with pytest.raises(UserError, match="no run of the host"):
        pair([], [guest])
    guest.params["code_kib"] = 512
    with pytest.raises(UserError, match="did different work: code_kib"):
        pair([host], [guest])
    guest.params["code_kib"] = host.params["code_kib"]
    guest.samples["event"] += 1000
    with pytest.raises(UserError, match="no event in common"):
        pair([host], [guest])
    guest.experiment = "machine"
    with pytest.raises(UserError, match="run of machine"):
        pair([host], [guest])
