"""Figures of threads: what they show, whatever was measured."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from perflib.experiments.threads import experiment
from perflib.instruments.threads.use import CLASSES
from perflib.lab.theme import themed
from perflib.model.run import Run
from perflib.store.run_files import saved_path
from tests.experiments.threads.thread_samples import samples
from tests.instruments.threads.made import made_recording


def legend(figure: Figure) -> list[str]:
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    return [text.get_text() for one in legends if one is not None for text in one.get_texts()]


def test_every_plot_has_its_table_and_the_calibration_stands_beside_the_published_one() -> None:
    def derived(**given: Any) -> dict[str, pd.DataFrame]:
        params = experiment.params({}).model_dump(mode="json")
        run = Run("made", "threads", params, samples(rounds=4, **given))
        return {name: make() for name, make in experiment.derived(run).items()}

    tables = derived()
    of_recordings = {"wait_paths", "use", "use_by_function", "critical_path"}
    assert set(tables) == set(experiment.tables) - of_recordings
    assert set(tables) == set(experiment.plots) - of_recordings
    calibration = tables["calibration"]
    assert (calibration["speedup_low"] < calibration["speedup"]).all()
    assert list(calibration["published_speedup"]) == [5.5, 5.7, 6.1, 6.2]
    other = derived(versions={"none": ()})
    assert other["calibration"]["published_speedup"].isna().all()
    assert other["gains"].empty


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
