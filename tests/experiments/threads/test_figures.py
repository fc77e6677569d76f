"""Figures of threads: what they show, whatever was measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from perflib.experiments.threads import experiment
from perflib.instruments.threads.use import CLASSES
from perflib.lab.theme import themed
from perflib.model.run import Run
from perflib.store.run_files import saved_path
from tests.experiments.threads.thread_samples import SHARES, samples
from tests.instruments.threads.made import made_recording


def drawn(frame: pd.DataFrame, **params: Any) -> dict[str, Figure]:
    run = Run("made", "threads", experiment.params(params).model_dump(mode="json"), frame)
    with themed():
        found = experiment.figures(run)
        for figure in found.values():
            figure.canvas.draw()
    return found


def legend(figure: Figure) -> list[str]:
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    return [text.get_text() for one in legends if one is not None for text in one.get_texts()]


def test_all_are_drawn_with_labels_and_units() -> None:
    found = drawn(samples(rounds=6))
    assert list(found) == ["calibration", "states", "concurrency", "waits", "gains", "overhead"]
    for figure in found.values():
        assert any(axes.get_xlabel() for axes in figure.axes)
        assert legend(figure)
    assert legend(found["calibration"]) == [
        "concurrency = speed-up", "Jones 2015, 8 threads", "Initial", "ROOT", "CMSSW I", "Final",
    ]  # fmt: skip
    assert legend(found["waits"]) == ["the profile", "self-reported by the job"]
    assert legend(found["gains"]) == ["profile: at most", "profile: expected", "measured"]
    assert "Jones 2015 (VTune, 8 threads)" in legend(found["overhead"])
    assert legend(found["states"]) == ["running", "waiting for a lock"]


def test_the_calibration_shows_versions_where_they_are() -> None:
    (axes,) = drawn(samples(rounds=12, noise=0.001, drift=0.0))["calibration"].axes
    containers = {one.get_label(): one for one in axes.containers}
    final = containers["Final"]
    assert isinstance(final, ErrorbarContainer)
    x, y = (np.asarray(values)[0] for values in final.lines[0].get_data())
    assert (x, y) == pytest.approx((1 - SHARES["output"],) * 2, abs=0.02)
    assert len([one for one in axes.containers if one.get_label() == "Final"]) == 1


def test_the_cost_lies_beside_the_limit_and_the_published_one() -> None:
    (axes,) = drawn(samples(rounds=12, cost=0.4))["overhead"].axes
    assert axes.get_xscale() == "log"
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["9.0", "5.7", "2.0", "1.5"]
    (dots,) = axes.containers
    assert isinstance(dots, ErrorbarContainer)
    assert np.asarray(dots.lines[0].get_xdata()) == pytest.approx([np.exp(0.4)] * 4, rel=0.05)


def test_a_running_job_has_what_its_profile_says() -> None:
    frame = samples(versions={"running": ("formula",)}, rounds=12)
    frame = frame[frame["configuration"] == "profiled"].assign(round=0, self_report=None)
    found = drawn(frame, job="running", job_pid=1)
    assert list(found) == ["states", "concurrency", "waits"]
    assert legend(found["waits"]) == ["the profile"]


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
