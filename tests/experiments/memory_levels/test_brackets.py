"""What probes change: a core alone, one next to a busy sibling, machines where they show nothing.

The simulated sibling is not of the analysis's own model (``beside_sibling``), and the machine is
busy in all of these.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.memory_levels import experiment
from perflib.experiments.memory_levels.claims import CACHE_SHARED, CAPACITY, UNCLAIMED
from perflib.experiments.memory_levels.measure import half_width
from perflib.experiments.memory_levels.table import MemoryTable, own_bytes
from perflib.experiments.memory_levels.trials import ArrayConfiguration
from perflib.framework.brackets import BRACKET_COLUMNS
from tests.experiments.memory_levels.memory_samples import (
    CACHES,
    KIB,
    MEMORY_NS,
    MIB,
    SIZES,
    beside_sibling,
    findings,
    in_turns,
    machine,
    run_of,
    samples,
)

SPLIT = {"L1d": 0.75, "L2": 0.5}
DENSE = sorted({*SIZES, *(int(size) for size in 2 * KIB * 2 ** (np.arange(60) / 6))})
WINDOW: dict[str, Any] = {"orders": ["window"], "backings": ["4k"]}


def quick(seed: int = 1, **more: Any) -> pd.DataFrame:
    """A run's samples of the curve in which levels are looked for, before a sibling works."""
    return samples(seed, **{"rounds": 10, "array_bytes": DENSE, "repeats": 6, **WINDOW, **more})


def busy(seed: int = 1, alone: float = 0.6, *, rounds: int = 10, **more: Any) -> pd.DataFrame:
    """The same on a machine whose sibling comes and goes, with larger arrays in turns."""
    return in_turns(beside_sibling(quick(seed, rounds=rounds), alone, seed, **more))


# --- two states ----------------------------------------------------------------------------------


def test_two_curves_where_both_states_were_seen() -> None:
    for seed in range(2):
        found = findings(busy(seed, part=SPLIT))
        assert {found[name].verdict for name in ("L1d", "L2")} == {"supported"}
        assert found["L2 shared"].verdict == "refuted"
        assert found["L2 shared"].effect < 0.7 * CACHES["L2"] / KIB
        for name, left in SPLIT.items():
            one = found[f"{name} capacity"]
            assert one.verdict == "supported"
            assert one.low < 100 * (1 - left) < one.high
            assert one.evidence["shared_kib"] < one.evidence["alone_kib"]
        assert "unclaimed level" not in found
        assert found["memory"].verdict != "refuted"
        assert json.dumps([one.to_dict() for one in found.values()], allow_nan=False)


def test_null_a_sibling_that_takes_no_part_of_the_caches() -> None:
    for seed in range(2):
        found = findings(busy(seed))
        for name in SPLIT:
            assert found[f"{name} capacity"].verdict != "supported"
            assert found[f"{name} shared"].verdict == "supported"


def test_null_no_level_that_should_not_be_there() -> None:
    """Four busy machines, each with another sibling: no level but those that are claimed."""
    for seed in range(4):
        found = findings(busy(seed, alone=0.2 + 0.1 * seed, part=SPLIT if seed % 2 else None))
        wrong = [one for one in found.values() if one.of.name.startswith(UNCLAIMED.name)]
        assert "supported" not in {one.verdict for one in wrong}


def test_null_equal_cores_whose_siblings_differ() -> None:
    """One core is alone nine tenths of the time, the other three: neither is slow."""
    sizes = [4 * KIB, 8 * KIB, 64 * MIB, 128 * MIB]
    for seed in range(3):
        made = quick(seed, cores=(0, 1), rounds=16, array_bytes=sizes)
        found = findings(beside_sibling(made, {0: 0.9, 1: 0.3}, seed, part=SPLIT))
        of_cores = [one for one in found.values() if "cpu" in one.about]
        assert len(of_cores) == 4
        assert "supported" not in {one.verdict for one in of_cores}
        assert {one.evidence["samples"] for one in of_cores} == {"alone"}


def test_a_slow_core_is_found_beside_a_busy_sibling() -> None:
    sizes = [4 * KIB, 8 * KIB, 64 * MIB, 128 * MIB]
    made = quick(cores=(0, 1), rounds=24, array_bytes=sizes, slow={1: 0.2})
    found = findings(beside_sibling(made, 0.7))
    assert found["cpu1 first level"].verdict == "supported"
    assert found["cpu1 first level"].low < 20 < found["cpu1 first level"].high


# --- levels that cores share ---------------------------------------------------------------------


def test_what_cores_share_is_read_off_the_samples_that_scatter_less() -> None:
    table = MemoryTable(busy(), machine()).alone
    for level in table.levels:
        used = table.sampled(level)
        if level.array_bytes <= table.own_bytes:
            assert used is table
        else:
            widths = [part.latency(level).half_width for part in (table, table.part("all"))]
            assert used.latency(level).half_width == min(widths)
    memory = findings(busy())["memory"]
    assert memory.evidence["samples"] in ("alone", "all")
    assert memory.evidence["half_width_ns"].keys() == {"alone", "all"}
    assert memory.reasons[-1].code == f"from_{memory.evidence['samples']}"


def test_choosing_the_narrower_interval_keeps_its_coverage() -> None:
    """Memory that a sibling does not slow: the interval that was chosen covers the truth."""
    sizes = [64 * MIB, 81 * MIB, 102 * MIB, 128 * MIB]
    covered = 0
    for seed in range(12):
        made = quick(seed, array_bytes=sizes, drift=0.0, tails=0.0, noise=0.05)
        table = MemoryTable(beside_sibling(made, 0.5, seed, slower=0.0), machine()).alone
        level = table.levels[0]
        found = table.sampled(level).latency(level)
        covered += found.low <= MEMORY_NS * 1.01 and found.high >= MEMORY_NS * 0.99
    assert covered >= 11


# --- probes show nothing -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alone", "more"), [(0.0, {}), (1.0, {}), (0.5, {"spike": False})], ids=str
)
def test_where_probes_tell_nothing_all_samples_count(alone: float, more: dict[str, Any]) -> None:
    """Never alone, always alone, and a processor whose probe shows no state."""
    made = busy(alone=alone, **more)
    table = MemoryTable(made, machine())
    assert table.alone is table
    assert table.probed
    found = findings(made)
    assert not [one for one in found.values() if one.of in (CACHE_SHARED, CAPACITY)]
    assert found["L1d"].verdict == "supported"
    assert found["L1d"].reasons[-1].code == "unclassified"
    assert set(experiment.derived(run_of(made))["latency"]()["samples"]) == {"all"}


def test_samples_without_probes_are_analysed_as_ever() -> None:
    made = quick(orders=["window", "random"])
    empty = made.assign(**{column.name: math.nan for column in BRACKET_COLUMNS})
    before, after = findings(made), findings(empty)
    assert {name: one.to_dict() for name, one in before.items()} == {
        name: one.to_dict() for name, one in after.items()
    }
    assert all("samples" not in one.evidence for one in before.values())


def test_ends_of_few_noisy_rounds_hold_the_truth() -> None:
    """On a slope a level may seem to continue; what is 1.41 times as slow is not of it."""
    for seed in range(4):
        made = in_turns(beside_sibling(quick(seed, rounds=3, noise=0.15), 0.6, seed))
        found = findings(made)
        for name in ("L1d", "L2"):
            one, kib = found[name], CACHES[name] / KIB
            assert one.verdict != "refuted"
            if one.verdict == "supported":
                assert one.low <= 1.13 * kib
                assert one.high >= kib


def test_a_run_goes_on_until_all_arrays_were_visited_twice() -> None:
    made = busy(rounds=5)
    turns = [ArrayConfiguration(0, "window", "4k", MIB, 1, 1, every) for every in (1, 3)]
    assert half_width(made, machine(), turns) == math.inf
    assert half_width(made, machine(), turns[:1]) < 100


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan])
def test_probes_that_are_none_are_left_out(wrong: float) -> None:
    made = busy(part=SPLIT)
    made.loc[made.index[::7], "probe_before_ns"] = wrong
    found = findings(made)
    assert found["L1d"].verdict == "supported"
    made["probe_after_ns"] = wrong
    assert findings(made)["L1d"].verdict == "supported"


# --- which caches are the core's own -------------------------------------------------------------


def test_own_caches_are_those_of_a_core_and_its_threads() -> None:
    described = machine()
    assert own_bytes(described, 0) == MIB
    assert own_bytes({}, 0) == 0
    second = next(cache for cache in described["caches"] if cache["level"] == 2)
    second["shared_by"] = ["0-1", "2-3"]
    assert own_bytes(described, 0) == CACHES["L1d"]
    for place in described["cpus"]:
        place["siblings"] = [0, 1] if place["cpu"] < 2 else [2, 3]
    assert own_bytes(described, 0) == MIB


# --- figures -------------------------------------------------------------------------------------


def test_both_curves_are_drawn_and_named() -> None:
    run = run_of(busy(part=SPLIT))
    (axes,) = experiment.drawings(run)["latency"]().axes
    legend = axes.get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert {"window, 4 KiB pages", "window, 4 KiB pages, sibling busy"} <= set(labels)
    assert "core alone" in legend.get_title().get_text()
    frame = experiment.derived(run)["levels"]()
    assert frame.loc[frame["samples"] == "shared", "level"].tolist() == ["L1d", "L2"]
