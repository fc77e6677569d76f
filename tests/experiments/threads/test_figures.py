"""Figures of threads: what they show, whatever was measured."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from perflib.experiments.threads import experiment
from perflib.instruments.threads.use import CLASSES
from perflib.lab.theme import themed
from perflib.model.run import Run
from perflib.store.run_files import saved_path
from tests.experiments.judged import made_run
from tests.experiments.threads.thread_samples import samples
from tests.instruments.threads.made import made_recording


def legend(figure: Figure) -> list[str]:
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    return [text.get_text() for one in legends if one is not None for text in one.get_texts()]


def test_beside_a_version_of_ones_own_nothing_is_published() -> None:
    run = made_run(experiment, samples(rounds=4, versions={"none": ()}))
    tables = {name: make() for name, make in experiment.derived(run).items()}
    assert tables["calibration"]["published_speedup"].isna().all()
    assert tables["gains"].empty


def test_what_is_drawn_of_recordings_needs_them() -> None:
    run = Run(
        "threads-20261124-000000-made-abcdefgh",
        "threads",
        experiment.params({}).model_dump(mode="json"),
        samples(rounds=2),
        {"recordings": {"Initial": "one", "Final": "two"}},
    )
    folder = saved_path(run.id).with_suffix(".recordings")
    for seed, name in enumerate(("one", "two")):
        made_recording(folder / name, threads=4, seconds=0.3, per_second=1000, seed=seed)
    tables = {name: make() for name, make in experiment.derived(run).items()}
    assert set(tables) == set(experiment.tables)
    use = tables["use"].groupby("version")["share_percent"].sum()
    assert use.to_dict() == pytest.approx({"Initial": 100, "Final": 100})
    path = tables["critical_path"].groupby(["version", "by"])["share_percent"].sum()
    for by in ("thread", "lock", "state"):
        assert path["Initial", by] == pytest.approx(100)
    functions = tables["use_by_function"]
    assert (functions[list(CLASSES)].sum(axis=1) - functions["cpu_s"]).abs().max() < 1e-9
    with themed():
        found = experiment.figures(run)
        for name in ("use", "critical_path"):
            found[name].canvas.draw()
            assert legend(found[name])
