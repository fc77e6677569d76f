"""What samples of coherence say: known machines simulated, tables of users, figures."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.core_pairs.coherence.names import LAYOUTS
from perflib.experiments.core_pairs.coherence.table import CoherenceTable
from perflib.lab.theme import figures
from perflib.model.finding import Finding
from tests.experiments.core_pairs.coherence.coherence_samples import (
    LAYOUT_NS,
    findings,
    run_of,
    samples,
)

COHERENCE = get("coherence")
FOUR = ((0, 1, 2, 3), (4, 5, 6, 7))
CAS = ("cas_one_line",)


@pytest.fixture(scope="module")
def two() -> pd.DataFrame:
    """Two cores that share a cache: nothing is wrong with them."""
    return samples()


@pytest.fixture(scope="module")
def of_two(two: pd.DataFrame) -> dict[str, Finding]:
    return findings(two)


@pytest.fixture(scope="module")
def eight() -> pd.DataFrame:
    """Two groups of four cores, measured by compare-and-swap."""
    return samples(groups=FOUR, whats=CAS)


# --- the table -----------------------------------------------------------------------------------


def test_medians_do_not_move_with_preempted_samples_and_means_do(two: pd.DataFrame) -> None:
    hit = CoherenceTable(samples(tail_ns=5000.0)).latencies()
    quiet = CoherenceTable(two).latencies()
    assert np.allclose(hit["median_ns"], quiet["median_ns"])
    assert (hit["mean_ns"] > 40 * hit["median_ns"]).any()


def test_the_interval_is_that_of_the_run_not_of_the_pairs() -> None:
    """Pairs far apart are no uncertainty; drift and noise are."""
    table = CoherenceTable(samples(groups=FOUR, whats=CAS, far=5.0, drift=0.0, noise=0.01))
    row = table.latencies().iloc[0]
    assert row["farthest_ns"] > 4 * row["nearest_ns"]
    assert row["median_ns_high"] / row["median_ns_low"] < 1.01
    assert table.half_width < 3


def test_a_users_table_needs_four_columns() -> None:
    made = samples(whats=("cas_one_line", "modified load"), layouts=None)
    mine = made[["owner_cpu", "requester_cpu", "what", "latency_ns"]]
    COHERENCE.check_samples(mine)
    found = findings(mine)
    assert found["groups"].effect == 1
    assert set(figures(run_of(mine))) == {
        "heatmap_cas_one_line", "states", "protocols", "over_time",
    }  # fmt: skip
    named = mine.replace({"what": {"cas_one_line": "my own protocol"}})
    table = CoherenceTable(named[named["what"] == "my own protocol"])
    assert table.main == "my own protocol"
    assert math.isfinite(table.half_width)


# --- the control ---------------------------------------------------------------------------------


def test_the_control_bites_and_the_layout_is_safe(of_two: dict[str, Finding]) -> None:
    found = of_two
    assert found["control"].verdict == "supported"
    assert found["control"].low < 0 < found["control"].high
    assert found["fetching ahead"].verdict == "supported"
    assert found["fetching ahead"].low < 100 * (1 - 2.8 / 29) < found["fetching ahead"].high
    shown = found["control"].evidence["latency_ns"]
    assert list(shown) == list(LAYOUTS)
    assert shown["neighbours ascending"] == pytest.approx(1.05 * 2.8, rel=0.03)


def test_prefetchers_that_help_in_the_layout_used_refute_it() -> None:
    found = findings(samples(layouts={**LAYOUT_NS, "spread ascending": 12.0}))
    assert found["control"].verdict == "refuted"
    assert found["control"].low > 100


def test_without_a_control_that_bites_nothing_is_shown() -> None:
    found = findings(samples(layouts=dict.fromkeys(LAYOUT_NS, 29.0)))
    assert found["fetching ahead"].verdict == "refuted"
    assert found["control"].verdict == "inconclusive"
    assert [reason.code for reason in found["control"].reasons] == ["unprovoked"]


def test_no_control_no_claim() -> None:
    found = findings(samples(layouts=None))
    assert "control" not in found
    assert "fetching ahead" not in found


# --- states and protocols ------------------------------------------------------------------------


def test_what_transitions_cost(of_two: dict[str, Finding]) -> None:
    found = of_two
    assert found["preparation"].verdict == "supported"
    assert found["preparation"].evidence["proven_share"] == 1
    assert found["preparation"].evidence["nearest"] in ("modified write", "exclusive write")
    for what in ("modified load", "exclusive write", "owned load", "forward load"):
        one = found[what]
        assert one.verdict == "supported", what
        assert one.unit == "percent"
    assert found["modified load"].low < 100 * (130 / 28 - 1) < found["modified load"].high
    facts = found["modified load"].facts
    assert (facts["slow"], facts["fast"]) == ("invalid load (one line)", "modified load (one line)")
    assert facts["slow_ns"] == pytest.approx(1.05 * 130, rel=0.02)
    assert found["shared_here write"].verdict == "supported"
    assert found["shared_here load"].verdict == "refuted"
    assert found["owned_here write"].verdict == "refuted", "a line that migrates"
    assert "shared write" not in found


def test_on_a_machine_without_forwarding_memory_answers() -> None:
    found = findings(samples(changed={"shared load": 130.0}))
    assert found["shared load"].verdict == "refuted"
    assert found["modified load"].verdict == "supported"


def test_states_that_were_not_reached_are_found_out() -> None:
    """Lines that prefetchers brought along: as fast as the requester's own."""
    found = findings(samples(changed={"modified load": 1.2}))
    assert found["preparation"].verdict == "refuted"
    assert found["preparation"].evidence["nearest"] == "modified load"


def test_what_the_protocol_alone_does(of_two: dict[str, Finding]) -> None:
    one = of_two["protocols"]
    assert one.verdict == "supported"
    assert one.low < 100 * (49 / 26 - 1) < one.high
    assert one.evidence["one_way_ns"]["cas_one_line"] == pytest.approx(26 * 1.05, rel=0.02)
    assert one.evidence["times_as_reported"] == pytest.approx(90 / 49, rel=0.02)
    assert set(one.evidence["latency_ns"]) == {
        "cas_one_line (round trip)", "write_read_two_lines (round trip)",
        "one_way_message (one way)",
    }  # fmt: skip


def test_null_protocols_that_agree_as_one_way() -> None:
    same = {"cas_one_line": 100.0, "write_read_two_lines": 100.0, "one_way_message": 50.0}
    assert findings(samples(changed=same))["protocols"].verdict == "refuted"


# --- groups and cores ----------------------------------------------------------------------------


def test_null_equal_cores() -> None:
    four = ((0, 1, 2, 3),)
    found = findings(samples(groups=four, whats=CAS), four)
    assert found["groups"].verdict == "refuted"
    assert found["groups"].evidence["bound_percent"] < 5
    assert found["kernel"].verdict == "supported"


def test_groups_are_found_and_are_the_kernels(eight: pd.DataFrame) -> None:
    found = findings(eight, FOUR)
    assert found["groups"].verdict == "supported"
    assert found["groups"].effect == 2
    assert found["groups"].unit == "groups"
    assert found["groups"].about == {"what": "cas_one_line (round trip)"}
    assert [round(near["latency"]) for near in found["groups"].evidence["classes"]] == [
        pytest.approx(1.05 * 52, abs=2), pytest.approx(1.05 * 130, abs=4),
    ]  # fmt: skip
    assert found["kernel"].verdict == "supported"
    json.dumps([one.to_dict() for one in found.values()], allow_nan=False)


def test_a_core_whose_requests_are_slow() -> None:
    found = findings(samples(groups=FOUR, whats=CAS, slow={6: 0.2}), FOUR)
    assert [cpu for cpu in range(8) if found[f"cpu{cpu}"].verdict == "supported"] == [6]
    assert found["cpu6"].low < 20 < found["cpu6"].high
    assert found["cpu6"].evidence["where"] == "package 1, core 6, node 1"


# --- virtual cores that are migrated -------------------------------------------------------------


def migrated(seed: int = 1) -> pd.DataFrame:
    """In the last quarter of the run the host runs both on the threads of one core."""
    made = samples(seed, drift=0.0)
    late = (made["round"] >= 18) & ~made["what"].str.startswith(("local", "invalid"))
    return made.assign(latency_ns=made["latency_ns"].where(~late, made["latency_ns"] / 5))


def test_a_host_that_migrates_its_virtual_cores_is_seen() -> None:
    one = findings(migrated())["migrated"]
    assert one.verdict == "supported"
    assert one.effect == pytest.approx(400, rel=0.1)
    blocks = np.array(one.evidence["latency_ns_by_batch"])
    assert blocks[0] == pytest.approx(28, rel=0.05)
    assert blocks[-1] == pytest.approx(28 / 5, rel=0.05)
    found = CoherenceTable(migrated()).typical("modified load")
    assert found.effect == pytest.approx(28, rel=0.05), "where it was most of the time"
    assert found.low < 20 < found.high, "and the interval says that it is not all"


@pytest.mark.parametrize("seed", range(3))
def test_null_drift_and_noise_are_no_migration(seed: int) -> None:
    made = samples(seed, drift=0.15, noise=0.05, whats=("modified load",), layouts=None)
    assert findings(made)["migrated"].verdict == "refuted"
    assert findings(made[made["round"] == 0])["migrated"].verdict == "inconclusive"


# --- pairs at the same time ----------------------------------------------------------------------


@pytest.mark.parametrize(("together", "verdict"), [(1.0, "supported"), (1.3, "refuted")])
def test_pairs_slow_each_other_or_do_not(together: float, verdict: str) -> None:
    made = samples(groups=FOUR, whats=CAS, at_once=4, together=together)
    found = findings(made, FOUR)["pairs at once"]
    assert (found.verdict, found.evidence["pairs_at_once"]) == (verdict, 4)
    assert found.low < 100 * (together - 1) < found.high


def test_one_pair_at_a_time_needs_no_such_control(of_two: dict[str, Finding]) -> None:
    assert "pairs at once" not in of_two
