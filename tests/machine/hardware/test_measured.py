"""Measured siblings: which saved run of `sharing` corrects the kernel, and who uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perflib.experiments import get
from perflib.experiments.contention.measure import core_sets
from perflib.experiments.core_pairs import analyse
from perflib.experiments.core_pairs.sharing import SharingParams
from perflib.experiments.kv_per_core import KvParams
from perflib.experiments.kv_per_core import measure as kv
from perflib.experiments.memory_load.measure import pairs_of
from perflib.framework import params
from perflib.investigation.conclusion import conclude
from perflib.lab.portrait_facts import facts_of
from perflib.machine.hardware import topology as topologies
from perflib.machine.hardware.measured import NOTHING, Measured, measured_siblings, siblings
from perflib.machine.hardware.topology import Topology
from perflib.machine.identity import identity
from perflib.store.run_files import runs_dir, save
from tests.experiments.core_pairs.sharing.sharing_samples import machine, samples
from tests.experiments.judged import made_run
from tests.experiments.topologies import places
from tests.investigation.cases import evidence, healthy

SHARING = get("sharing")
ONE_CORE = "cpu0 and cpu1 are threads of one core, though the kernel says two"
FOUR = {0: 0, 1: 0, 2: 0, 3: 0}


@pytest.fixture(autouse=True)
def own_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No run of another test corrects this one's machine."""
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))


def saved(day: int = 1, here: dict[str, str] | None = None, **host: Any) -> str:
    """A run of four CPUs of this machine and boot, or of another, in the store."""
    who = {**machine((), (), 4), **identity(), **(here or {})}
    start = f"2026-11-{day:02}T10:00:00.000+00:00"
    run = made_run(SHARING, samples(**host), {"machine": who, "start": start})
    run = replace(run, id=f"sharing-202611{day:02}-100000-here-{day}")
    save(run, reported=SHARING.reported(run))
    return run.id


def cores() -> list[tuple[int, ...]]:
    return topologies._corrected(places(FOUR)).cores()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Topology:
    """Four CPUs: by a run, cpu0 and cpu1 are one core, which the kernel hides."""
    run = saved(cores=[(0, 1)])
    found = topologies._corrected(places(FOUR))
    for module in (params, kv):
        monkeypatch.setattr(
            module, "topology", lambda measured=True: found if measured else places(FOUR)
        )
    assert found.notes == {(0, 1): f"{ONE_CORE} (sharing run {run}): one of them at a time"}
    return found


def test_null_without_a_run_or_where_it_agrees_the_kernel_is_right() -> None:
    assert measured_siblings() == NOTHING
    assert topologies._corrected(places(FOUR)) == places(FOUR)
    saved(neighbours=0.0)
    assert list(measured_siblings().pairs.values()) == [False] * 6
    assert topologies._corrected(places(FOUR)) == places(FOUR)


def test_a_run_corrects_the_kernel_in_both_directions() -> None:
    saved(neighbours=0.0, cores=[(0, 1)])
    found = topologies._corrected(places(FOUR, {2: (2, 3), 3: (2, 3)}))
    assert found.cores() == [(0, 1), (2,), (3,)]
    assert [cpu.kernel_siblings for cpu in found.cpus] == [(0,), (1,), (2, 3), (2, 3)]
    assert found.where(0).endswith("sibling of cpu1 (measured)")
    assert "cpu2 and cpu3 are on two cores, though the kernel says one" in found.notes[2, 3]
    assert found.notes_of([1]) == [found.notes[0, 1]]


def test_the_newest_run_of_this_boot_counts() -> None:
    saved(day=1, cores=[(0, 1)])
    saved(day=3, cores=[(0, 2)], here={"boot_id": "0" * 32})
    saved(day=4, cores=[(0, 3)], here={"machine_id": "1" * 32})
    assert cores() == [(0, 1), (2,), (3,)]
    saved(day=2, cores=[(1, 2)])
    assert cores() == [(0,), (1, 2), (3,)]


def test_a_move_within_the_run_makes_it_unused_and_is_said() -> None:
    run = saved(cores=[(0, 1)], moved=[(2, 3)], rounds=24, moves_at=12)
    said = topologies._corrected(places(FOUR, {2: (2, 3), 3: (2, 3)}))
    assert said.cores() == [(0,), (1,), (2, 3)]
    moved = f"cpu0 and cpu1 moved within sharing run {run}, which therefore corrects nothing"
    assert said.notes[0, 1] == moved


@pytest.mark.parametrize("make", [
    lambda path: path.write_bytes(b"no run"),
    lambda path: path.mkdir(),
    lambda path: path.symlink_to("nowhere"),
])  # fmt: skip
def test_what_is_no_run_corrects_nothing(make: Callable[..., Any]) -> None:
    runs_dir().mkdir(parents=True)
    make(runs_dir() / "sharing-20261101-100000-here-1.parquet")
    assert measured_siblings() == NOTHING


def test_cpus_that_are_not_there_are_left_out_and_threads_of_threads_are_one_core() -> None:
    known = Measured("run", {(0, 9): True, (7, 8): False, (0, 1): True, (1, 2): True})
    kernel = {cpu: (cpu,) for cpu in range(3)}
    assert siblings(known, kernel) == dict.fromkeys(range(3), (0, 1, 2))


# --- who uses it ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
def test_one_thread_of_a_core_is_measured_but_sharing_tries_all_that_the_kernel_names() -> None:
    planned = kv.plan(KvParams())
    assert planned["cores"] == [0, 2, 3]
    assert planned["notes"][0].startswith(ONE_CORE)
    assert SharingParams.make({"cores": "physical"}).resolved_cores() == [0, 1, 2, 3]
    assert kv.plan(KvParams(cores=[2, 3]))["notes"] == []


def test_distances_are_labelled_by_it(here: Topology) -> None:
    assert ((0, 1), "sibling (measured)") in core_sets([0, 1, 2, 3], here, ())
    assert {far for _, far in core_sets([0, 2, 3], here, ())} == {"none", "node"}
    assert pairs_of([0, 1, 2, 3], here)[0].stream_cpus == (2, 3)


def test_matrices_portrait_and_conclusion_say_it(here: Topology) -> None:
    described = [asdict(cpu) | {"where": here.where(cpu.cpu)} for cpu in here.cpus]
    notes = list(here.notes.values())
    known = {"cpus": described, "topology": {"cores": 3, "notes": notes}}
    run = made_run(get("coherence"), samples(), {"machine": known})
    cells: Any = SimpleNamespace(cpus=(0, 1, 2))
    assert analyse._measured_cores(cells, run) == ["cpu0-1"]
    labels = analyse._named_groups(cells, known)
    assert len(set(labels["core"])) == 3  # the kernel's word stays the kernel's
    found = evidence(fit={"machine": known}, cores=[0, 2, 3], symptom=healthy([0, 2, 3]))
    drawn = facts_of(found)
    assert [core.name for core in drawn.cores] == ["cpu0+1", "cpu2", "cpu3"]
    assert "measured, the kernel says otherwise: cpu0+1" in drawn.signs
    assert "cpu0+1: one core, as measured." in drawn.in_words()
    assert f"{notes[0]}." in conclude(found).map
