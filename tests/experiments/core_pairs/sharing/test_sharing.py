"""`sharing`: who is found by simulation, among few CPUs and many, and short real runs."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.core_pairs.sharing import RESOURCES, measure
from perflib.experiments.core_pairs.sharing import table as tables
from perflib.experiments.core_pairs.sharing.table import SharingTable
from perflib.machine.hardware.caches import Cache
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from tests.experiments.core_pairs.sharing.sharing_samples import (
    Groups,
    Host,
    machine,
    run_through,
    samples,
)
from tests.experiments.judged import by_claim, by_subject, codes, made_run, supported

EXPERIMENT = get("sharing")
CPUS = sorted(os.sched_getaffinity(0))
needs_two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="sharing needs two CPUs")


def found(
    rows: pd.DataFrame, cores: Groups = (), l2: Groups = (), cpus: int = 4
) -> dict[str, Finding]:
    """By subject, where the kernel names these cores and second-level caches."""
    run = made_run(EXPERIMENT, rows, {"machine": machine(cores, l2, cpus)})
    return by_subject(EXPERIMENT.analyse(run))


# --- few CPUs ------------------------------------------------------------------------------------


def test_null_cpus_that_share_nothing_are_called_nothing() -> None:
    """Twenty runs of four CPUs, with noise of heavy tails and neighbours that come and go."""
    called = [supported(found(samples(seed)).values()) for seed in range(20)]
    assert [one for one in called if one not in ([], ["kernel"])] == []
    quiet = found(samples(1, neighbours=0.0))
    assert quiet["cpu0 and cpu1: ports"].verdict == "refuted"
    assert quiet["kernel"].verdict == "supported"


def test_hidden_siblings_are_named_and_the_kernel_is_corrected() -> None:
    for seed in range(10):
        said = found(samples(seed, cores=[(0, 2), (1, 3)]))
        named = {one for one in supported(said.values()) if one.endswith("ports")}
        assert named == {"cpu0 and cpu2: ports", "cpu1 and cpu3: ports"}
        assert said["kernel"].verdict == "refuted"
    sentence = said["cpu0 and cpu2: ports"].plain
    assert sentence.startswith("cpu0 and cpu2 are threads of one core, though the kernel says two")
    assert (
        "cpu1 and cpu3 are threads of one core, though the kernel says two" in said["kernel"].plain
    )


def test_what_the_kernel_names_and_is_not_so_is_reported() -> None:
    said = found(samples(3, neighbours=0.0), cores=[(0, 1)])
    assert said["cpu0 and cpu1: ports"].plain.startswith(
        "cpu0 and cpu1 are on two cores, though the kernel says one"
    )
    assert said["kernel"].verdict == "refuted"
    unknown = by_subject(EXPERIMENT.analyse(made_run(EXPERIMENT, samples(3))))
    assert codes(unknown["kernel"]) == ["unknown"]


def test_a_cluster_shares_its_second_level_cache_and_nothing_else() -> None:
    cluster = [(0, 1, 2, 3)]
    said = found(samples(4, cpus=6, l2=cluster, neighbours=0.02), l2=cluster, cpus=6)
    named = {one for one in supported(said.values()) if one != "kernel"}
    assert named == {f"cpu{a} and cpu{b}: l2" for a in range(4) for b in range(a + 1, 4)}
    assert said["kernel"].verdict == "supported"


def test_dies_and_nodes_are_distinguished_from_cores() -> None:
    """Two dies on a node: each has its third-level cache, both the memory."""
    dies, nodes = [(0, 1), (2, 3)], [(0, 1, 2, 3)]
    for seed in range(5):
        rows = samples(seed, resources=("ports", "l3", "memory"), dies=dies, nodes=nodes)
        said = found(rows)
        named = {one for one in supported(said.values()) if one != "kernel"}
        every = {f"cpu{a} and cpu{b}" for a in range(4) for b in range(a + 1, 4)}
        wanted = {"cpu0 and cpu1: l3", "cpu2 and cpu3: l3"} | {f"{one}: memory" for one in every}
        assert named == wanted
    assert "take memory bandwidth from each other" in said["cpu0 and cpu3: memory"].plain
    assert "have a third-level cache each" in said["cpu0 and cpu3: l3"].plain


def test_a_lower_clock_is_not_taken_for_a_sibling() -> None:
    rows = samples(5)
    slow = rows.assign(ratio=rows["ratio"] * 1.3, clock_ratio=1.3 * np.sqrt(rows["ratio"]))
    said = found(slow)
    assert "cpu0 and cpu1: ports" not in supported(said.values())
    assert codes(said["cpu0 and cpu1: ports"])[0] == "clock"


def test_noise_near_the_threshold_is_no_change() -> None:
    rows = samples(6, cores=[(0, 1)], rounds=40)
    near = rows.assign(ratio=np.exp(np.log(rows["ratio"]) * np.log(1.15) / 0.4))
    assert not any(one.endswith("course") for one in supported(found(near).values()))


@pytest.mark.parametrize("before", [[(0, 1)], []], ids=["parted", "joined"])
def test_a_migration_in_the_middle_is_reported_with_its_time(before: Groups) -> None:
    after = [] if before else [(0, 1)]
    for seed in range(10):
        rows = samples(seed, cores=before, moved=after, rounds=24, moves_at=12)
        said = found(rows)
        assert [one for one in supported(said.values()) if "course" in one] == [
            "cpu0 and cpu1: course"
        ]
        assert said["cpu0 and cpu1: ports"].verdict == "inconclusive"
        (change_s,) = said["cpu0 and cpu1: course"].evidence["changes_s"]
        starts = rows[rows["round"].isin((11, 12, 13))]["start_ns"] / 1e9
        assert starts.min() - 1 < change_s < starts.max() + 1


def test_one_odd_trial_is_no_change_and_no_sibling() -> None:
    rows = samples(7, rounds=8, neighbours=0.0)
    for at in range(0, len(rows), 5):
        for factor in (0.01, 100.0):
            wrong = rows.assign(ratio=rows["ratio"].where(rows.index != at, factor))
            assert supported(found(wrong).values()) in ([], ["kernel"])


def test_pairs_that_the_kernel_names_are_framed() -> None:
    run = made_run(EXPERIMENT, samples(8, cores=[(0, 1)]), {"machine": machine([(0, 1)], (), 4)})
    assert (EXPERIMENT.derived(run)["pairs"]()["kernel"] == "one").sum() == 3
    panels = EXPERIMENT.figures(run)["pairs"].axes[:3]
    assert [len(axes.patches) for axes in panels] == [2, 2, 2]


# --- many CPUs -----------------------------------------------------------------------------------


def permuted(seed: int, cpus: int = 64) -> list[tuple[int, int]]:
    order = np.random.default_rng(seed).permutation(cpus).tolist()
    return [(a, b) for a, b in zip(order[::2], order[1::2], strict=True)]


def named_pairs(rows: pd.DataFrame) -> set[tuple[int, int]]:
    found_ = by_claim(EXPERIMENT.analyse(made_run(EXPERIMENT, rows)))["shared"]
    return {(one.about["a"], one.about["b"]) for one in found_ if one.verdict == "supported"}


def test_siblings_among_64_cpus_are_found_by_few_halvings() -> None:
    """A few times log2(64) = 6 trials of each CPU; all pairs would be 2016."""
    for seed in range(3):
        cores = permuted(seed)
        host = Host(seed, cores, neighbours=0.1)
        rows, search = run_through(range(64), itertools.repeat(host), rounds=20, seed=seed)
        assert named_pairs(rows) == {tables.pair_of(*one) for one in cores}
        assert search.without(range(64)) == []
        assert len(rows) < 64 * 24


def test_null_among_64_cpus_nobody_is_found_and_each_is_alone() -> None:
    for seed in range(3):
        host = Host(seed, (), neighbours=0.1)
        rows, _ = run_through(range(64), itertools.repeat(host), rounds=24, seed=seed)
        said = by_claim(EXPERIMENT.analyse(made_run(EXPERIMENT, rows)))
        assert named_pairs(rows) == set()
        verdicts = [one.verdict for one in said["alone"]]
        assert "refuted" not in verdicts
        assert verdicts.count("supported") > 48


def test_some_of_24_cpus_have_a_sibling_and_one_moves_to_another() -> None:
    before, after = [(0, 13), (5, 20)], [(0, 7), (5, 20)]
    hosts = Host(1, before), Host(2, after)

    hosts[1].clock = hosts[0].clock
    rows, search = run_through(range(24), [hosts[0]] * 20 + [hosts[1]] * 40, rounds=60)
    said = by_subject(EXPERIMENT.analyse(made_run(EXPERIMENT, rows)))
    assert {0, 5, 7, 13, 20} - set(search.without(range(24))) == {0, 5, 7, 20}
    assert said["cpu0 and cpu13: course"].verdict == "supported"
    assert said["cpu5 and cpu20: ports"].verdict == "supported"
    assert said["cpu5 and cpu20: course"].verdict == "refuted"


def test_a_resumed_search_decides_the_same() -> None:
    rows, search = run_through(range(16), itertools.repeat(Host(3, [(0, 9)])), rounds=12)
    again = type(search)(search._trials, range(16), [], halve=True, threshold=search._threshold)
    assert [again.partners(12, cpu) for cpu in range(16)] == [
        search.partners(12, cpu) for cpu in range(16)
    ]
    assert 9 in again.partners(12, 0) + again.partners(13, 0)
    assert len(rows)


# --- bad input, and real runs --------------------------------------------------------------------


def test_one_cpu_is_refused_with_a_sentence() -> None:
    with pytest.raises(UserError, match=f"sharing needs two CPUs.*only cpu{CPUS[0]}"):
        EXPERIMENT.plan(EXPERIMENT.params({"cores": [CPUS[0]]}))


@needs_two_cpus
def test_caches_that_are_not_reported_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "caches", lambda: ())
    made = EXPERIMENT.plan(EXPERIMENT.params({"cores": CPUS[:2]}))
    assert list(made["sizes"]) == ["ports"]
    assert len(made["notes"]) == 4
    with pytest.raises(UserError, match="nothing is left to try"):
        EXPERIMENT.plan(EXPERIMENT.params({"cores": CPUS[:2], "resources": ["l2"]}))


@needs_two_cpus
def test_shared_memory_is_filled_where_a_trial_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """A last-level cache of 16 MiB is tried, one of 480 MiB is left out, with a sentence."""

    def reported(l3_mib: int) -> None:
        one = Cache(1, "data", 32 << 10, 8, 64, 64, tuple(CPUS))
        every = one, replace(one, kind="unified", level=2, size_bytes=1 << 20)
        last = replace(one, kind="unified", level=3, size_bytes=l3_mib << 20)
        monkeypatch.setattr(measure, "caches", lambda: (*every, last))

    reported(16)
    sizes = EXPERIMENT.plan(EXPERIMENT.params({"cores": CPUS[:2]}))["sizes"]
    assert sizes["l3"] == [8 << 20, 12 << 20]
    assert sizes["memory"] == [48 << 20, 48 << 20]
    run = EXPERIMENT.measure(EXPERIMENT.params(short(resources=["l3", "memory"])))
    assert {*run.samples["resource"]} == {"l3", "memory"}
    assert not run.samples["ok"].any() or SharingTable(run.samples).pairs
    reported(480)
    made = EXPERIMENT.plan(EXPERIMENT.params({"cores": CPUS[:2]}))
    assert list(made["sizes"]) == ["ports", "l1", "l2"]
    assert made["notes"][0] == "l3 is left out: a trial does not fill 480 MiB of cache"


def short(**given: Any) -> dict[str, Any]:
    return {"budget_s": 1.0, "cores": CPUS[:2], "alternate_ms": 4, "alternations": 3} | given


@needs_two_cpus
@pytest.mark.parametrize("priority", [50, None])
def test_a_short_run_has_each_resource(priority: int | None) -> None:
    run = EXPERIMENT.measure(EXPERIMENT.params(short(fifo_priority=priority)))
    assert set(run.samples["resource"]) <= set(RESOURCES)
    assert set(run.samples["listener_cpu"]) == set(CPUS[:2])
    if run.samples["ok"].any():
        assert SharingTable(run.samples).pairs
    else:
        assert "kept a CPU from its thread" in " ".join(run.provenance["problems"])


@needs_two_cpus
def test_a_cpu_that_is_taken_away_costs_its_trials_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a cpuset does: the kernel refuses the CPU, the run says so and keeps what it has."""
    made = EXPERIMENT.plan(EXPERIMENT.params(short()))
    monkeypatch.setattr(
        measure, "plan", lambda _: made | {"cores": [CPUS[0], 16000], "pairs": [[CPUS[0], 16000]]}
    )
    run = EXPERIMENT.measure(EXPERIMENT.params(short()))
    assert not run.samples["ok"].any()
    assert "offline" in " ".join(run.provenance["problems"])
    with pytest.raises(UserError, match="no sample is usable"):
        EXPERIMENT.analyse(run)
