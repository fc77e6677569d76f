"""What a user calls: the doctor and the numa experiment, with all cores and without one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perflib.cli import main
from perflib.experiments.core_pairs.numa import experiment
from perflib.experiments.core_pairs.numa.trials import NumaTrials
from perflib.machine.hardware.topology import topology
from perflib.measure.arrays import Arrays
from perflib.measure.conditions import Conditions
from perflib.measure.schedule import Columns
from perflib.model.run import Run
from perflib.store.run_files import load, runs
from tests.numa.layouts import Layout

SMALL: dict[str, Any] = {"array_mib": 2, "trial_ms": 0.1}
COARSE_ROUNDS, WHOLE_ROUNDS = 4, 1  # then a core is taken away, for as many rounds again


@contextmanager
def offline(cpu: int) -> Iterator[None]:
    switch = Path(f"/sys/devices/system/cpu/cpu{cpu}/online")
    switch.write_text("0")
    try:
        yield
    finally:
        switch.write_text("1")


def last(layout: Layout) -> int:
    return len(layout.nodes) - 1


def whole(layout: Layout) -> pd.MultiIndex:
    cpus = range(len(layout.nodes))
    return pd.MultiIndex.from_product([cpus, cpus], names=["alloc_cpu", "load_cpu"])


# --- the doctor ----------------------------------------------------------------------------------


def test_the_doctor_sees_the_nodes(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["doctor", "--json"])
    machine = json.loads(capsys.readouterr().out)["machine"]
    cpus = {node["node"]: node["cpus"] for node in machine["nodes"]}
    assert (cpus, [node["distances"] for node in machine["nodes"]]) == (
        {node: layout.cpus(node) for node in range(len(layout.distances))},
        [list(row) for row in layout.distances],
    )
    assert tuple(cpu["node"] for cpu in machine["cpus"]) == layout.nodes


# --- a matrix ------------------------------------------------------------------------------------


def test_the_command_line_makes_a_matrix_of_groups(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {**SMALL, "detail": "groups", "budget_s": 0.1}  # a round that was begun is finished
    words = [word for name, value in given.items() for word in ("-p", f"{name}={value}")]
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["run", "numa", *words])
    assert capsys.readouterr().out.startswith("numa-")
    run = load(max(runs(), key=lambda saved: saved.id).id)
    heads = [layout.cpus(node)[0] for node in range(len(layout.distances))]
    cells = run.samples[["alloc_cpu", "load_cpu"]].itertuples(index=False, name=None)
    assert set(cells) == {(alloc, load) for alloc in heads for load in heads}
    assert run.samples["ok"].all()
    assert run.provenance["stopped"] == "budget spent"


@pytest.fixture(scope="module")
def run(layout: Layout) -> Run:
    """Rounds with all cores, and then without the last one, which is switched off meanwhile."""
    params = experiment.params({**SMALL, "precision_percent": 1e-9, "budget_s": 1e6})
    switched_off = COARSE_ROUNDS + WHOLE_ROUNDS
    stop, original = threading.Event(), NumaTrials.take

    def take(self: NumaTrials, round_: int, configuration: int) -> Columns:
        if round_ < switched_off:
            return original(self, round_, configuration)
        if round_ < switched_off + WHOLE_ROUNDS:
            with offline(last(layout)):
                return original(self, round_, configuration)
        stop.set()
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NumaTrials, "take", take)
        return experiment.measure(params, stop=stop)


def test_the_matrix_has_each_pair_of_cores_and_their_nodes(layout: Layout, run: Run) -> None:
    later = run.samples[run.samples["round"] >= COARSE_ROUNDS]
    before = later[later["round"] < COARSE_ROUNDS + WHOLE_ROUNDS]
    cells = before.groupby(["alloc_cpu", "load_cpu"])
    assert cells.size().index.equals(whole(layout))
    assert set(cells.size()) == {WHOLE_ROUNDS * run.samples["repeat"].nunique()}
    assert before["ok"].all()
    assert (before["latency_cycles"] > 0).all()
    node_of = dict(enumerate(layout.nodes))
    for side in ("alloc", "load"):
        assert (run.samples[f"{side}_node"] == run.samples[f"{side}_cpu"].map(node_of)).all()


def test_rounds_visit_the_cells_in_other_orders(run: Run) -> None:
    whole_rounds = run.samples[run.samples["round"] >= COARSE_ROUNDS].sort_values("position")
    orders = whole_rounds.drop_duplicates(["round", "position"]).groupby("round")[
        ["alloc_cpu", "load_cpu"]
    ]
    found = {tuple(cells.itertuples(index=False, name=None)) for _, cells in orders}
    assert len(found) == 2 * WHOLE_ROUNDS


# --- a core that is not there --------------------------------------------------------------------


def test_a_core_taken_away_during_a_run_loses_only_its_cells(layout: Layout, run: Run) -> None:
    gone = last(layout)
    after = run.samples[run.samples["round"] >= COARSE_ROUNDS + WHOLE_ROUNDS]
    its = (after["alloc_cpu"] == gone) | (after["load_cpu"] == gone)
    assert its.any()
    assert not after[its]["ok"].any()
    assert after[~its]["ok"].all()
    assert len(after[~its]) == WHOLE_ROUNDS * gone * gone * run.samples["repeat"].nunique()
    problems = " ".join(run.provenance["problems"])
    for what in ("memory of", "loads by"):
        assert f"{what} cpu{gone} " in problems
    assert f"cpu{gone} cannot be used: it is offline" in problems
    assert not any(f"cpu{cpu} " in problems for cpu in range(gone))


def test_asking_for_an_offline_core_is_refused(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = last(layout)
    with offline(gone):
        assert topology().where(gone) == "offline"
        with pytest.raises(SystemExit, match=r"^2$"):
            main(["run", "numa", "-p", f"cores=0,{gone}"])
        message = capsys.readouterr().err
        assert f"cores: CPU {gone} is offline; it may use 0-{gone - 1}" in message
        with Arrays(Conditions()) as arrays:
            why = arrays.place("a", order="random", bytes_=1 << 20, cpu=gone)
            assert why.startswith(f"cpu{gone} cannot be used: it is offline")
            assert "a" not in arrays
            assert arrays.place("a", order="random", bytes_=1 << 20, cpu=0, node=0) == ""
