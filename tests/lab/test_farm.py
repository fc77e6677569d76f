"""A farm in a notebook and in its report: figures, sentences, names, and what cannot be shown."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from perflib.fleet.analysis.simulated import simulated_farm
from perflib.lab.farm import FarmView, farm
from perflib.lab.farm_figures import heatmap_figure
from perflib.lab.farm_report import write_farm_report
from perflib.lab.theme import png
from perflib.model.errors import UserError
from perflib.store import run_files
from tests.fleet.farms import Healthy, table
from tests.hostile_names import NAMES
from tests.stored import RUNS

SMALL = Healthy(nodes=24, cores=12, days=6, models=("A",), rack_of=6, noise="days")


@pytest.fixture(scope="module")
def view() -> FarmView:
    levels, nodes = table(replace(SMALL, slow={"core": 0.06}), 0)
    levels.loc[levels["node"] == "n0005", "value"] *= 1.06
    return farm((levels, nodes))


def words(figure: Figure) -> str:
    return " ".join(one.get_text() for one in figure.findobj(Text))


def image(figure: Figure) -> np.ndarray:
    return np.asarray(figure.axes[0].images[0].get_array())


# --- figures -------------------------------------------------------------------------------------


def test_the_heatmap_has_the_slowest_node_on_top_and_marks_the_position(view: FarmView) -> None:
    figure = view.heatmap()
    shown = image(figure)
    assert shown.shape == (24, 12)
    assert view.slowest()[0] == "n0005"
    assert shown[0].mean() > 5
    assert shown[:, 8].mean() > 5
    assert np.median(shown[1:, :8]) < 1
    assert "cpu8" in words(figure)
    assert "n0005" in words(figure)
    assert image(view.heatmap(rows=(0, 5))).shape == (5, 12)


def test_a_farm_of_400_nodes_and_128_cores_is_drawn_readably() -> None:
    rng = np.random.default_rng(0)
    names = [f"node{number:03d}" for number in range(400)]
    level = pd.DataFrame({"percent": rng.normal(0, 0.3, 400), "node": names, "model": "A"})
    level.loc[[7, 9], "percent"] = 6.0, 7.0
    cores = pd.DataFrame(
        {
            "node": np.repeat(names, 128), "cpu": np.tile(np.arange(128), 400), "model": "A",
            "percent": rng.normal(0, 0.4, 400 * 128),
        }
    )  # fmt: skip
    figure = heatmap_figure(cores, level, "title", marked=["node007", "node009"])
    axes = figure.axes[0]
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert "node009" in labels
    assert len(labels) <= 12
    assert len(axes.get_xticks()) <= 10
    assert len(png(figure)) > 10_000
    boxes = [text.get_window_extent() for text in axes.get_xticklabels()]
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


def test_a_node_is_shown_among_its_model(view: FarmView) -> None:
    figure = view.node("n0005")
    left, right = figure.axes
    (here,) = np.asarray(left.lines[1].get_ydata())
    assert here == pytest.approx(6, abs=1.5)
    own = np.asarray(right.lines[-1].get_ydata())
    assert own[8] == max(own)
    assert "n0005" in words(figure)
    with pytest.raises(UserError, match="n0005"):
        view.node("n005")


def test_racks_by_the_hour(view: FarmView) -> None:
    assert image(view.hours()).shape == (4, 24)
    bare = farm((view.levels, view.nodes[["node", "model"]]))
    with pytest.raises(UserError, match="no rack is known"):
        bare.hours()


def test_levels_of_no_core_are_drawn_too(view: FarmView) -> None:
    whole = farm((view.levels.assign(cpu=-1), view.nodes))
    assert image(whole.heatmap()).shape == (24, 1)
    assert len(whole.node("n0005").axes) == 2


def test_everything_of_a_simulated_farm_says_so(tmp_path: Path) -> None:
    slow = {"model A": (3, 0.1)}
    simulated = farm(simulated_farm(24, 8, 8, models=("model A",), slow_core=slow))
    assert simulated.label == "simulated: "
    for figure in (simulated.heatmap(), simulated.hours(), simulated.node("simulated0001")):
        assert figure.get_suptitle().startswith("simulated: ")
    out = tmp_path / "report.html"
    for sentence in write_farm_report(simulated.levels, simulated.nodes, out):
        assert sentence.startswith("simulated: ")
    page = out.read_text()
    assert "No machine was measured for this report." in page
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    assert captions
    assert all(caption.startswith("simulated: ") for caption in captions)


# --- what a notebook asks ------------------------------------------------------------------------


def test_what_stands_out(view: FarmView) -> None:
    assert [one.about["name"] for one in view.found] == ["cpu8", "n0005"]
    assert "kv_per_core" in repr(view)
    assert len(view.overview().rows) == 5
    assert view.in_common().columns[0] == "attribute"
    assert view.runs("n0005")[0] != view.runs("n0005")[-1]


def test_a_mistake_is_a_sentence(view: FarmView) -> None:
    with pytest.raises(UserError, match="did you mean 'cores'"):
        view.table("core")
    with pytest.raises(UserError, match="did you mean 'kv_per_core'"):
        view.heatmap("kv_per_cores")
    with pytest.raises(UserError, match="levels lacks cpu, value"):
        farm((view.levels.drop(columns=["cpu", "value"]), view.nodes))
    with pytest.raises(UserError, match="0 is no slowdown"):
        farm((view.levels, view.nodes), threshold_percent=0)
    with pytest.raises(UserError, match="nothing was measured"):
        farm((view.levels.iloc[:0], view.nodes)).heatmap()


def test_the_view_zooms_to_a_node_and_opens_its_runs(
    view: FarmView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path))
    run = run_files.load(RUNS / "kv_per_core.parquet")
    run_files.save(run)
    levels = view.levels.copy()
    mine = levels["node"] == "n0005"
    levels["run"] = levels["run"].astype(str).where(~mine, run.id)
    shown = farm((levels, view.nodes)).view()
    assert shown.node.value == "n0005"
    assert "n0005 is slower than the other nodes" in shown._said.value
    before = bytes(shown._map.value)
    shown.rows.value = (0, 4)
    assert bytes(shown._map.value) != before
    assert run.id in shown.run.options
    shown.run.value = run.id
    assert "pl.load(" in shown._opened.value
    assert "All 2 cores are equally fast" in shown._opened.value
    among = bytes(shown._among.value)
    shown.node.value = "n0001"
    assert "n0005" not in shown._said.value
    assert bytes(shown._among.value) != among
    shown.run.value = shown.run.options[1]
    assert "unknown run" in shown._opened.value


# --- the report ----------------------------------------------------------------------------------


def test_the_report_is_one_file_that_loads_nothing(view: FarmView, tmp_path: Path) -> None:
    out = tmp_path / "folder" / "report.html"
    outcomes = pd.DataFrame(
        {
            "node": ["n1", "n2"],
            "experiment": ["kv_per_core"] * 2,
            "state": ["done", "failed"],
            "reason": ["", "the disk is full"],
        }
    )
    said = write_farm_report(view.levels, view.nodes, out, title="plan", outcomes=outcomes)
    page = out.read_text()
    assert "cpu8 of every node of A is slower" in said[0]
    assert said[0] in page
    assert "<h1>plan</h1>" in page
    assert "the disk is full" in page
    assert "1 of 2 measurements are not done." in page
    assert "default-src &#39;none&#39;" in page
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert page.count("<img ") == 3
    assert "Simulated" not in page


def test_a_report_of_nothing_says_so(view: FarmView, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert write_farm_report(view.levels.iloc[:0], view.nodes.iloc[:0], out) == []
    assert "Nothing that is certain." in out.read_text()


def test_hostile_names_stay_data_in_figures_and_report(tmp_path: Path) -> None:
    levels, nodes = table(replace(SMALL, slow={"core": 0.06}), 0)
    names = {node: f"{NAMES[place]}{place}" for place, node in enumerate(nodes["node"])}
    levels["node"], nodes["node"] = levels["node"].map(names), nodes["node"].map(names)
    hostile = "<script>alert(1)</script>$x$\x1b[2J"
    levels["model"] = nodes["model"] = hostile
    nodes["rack"] = [hostile + str(number % 4) for number in range(24)]
    nodes["bios"] = [hostile if number % 2 else "$\\frac{" for number in range(24)]
    levels["experiment"] = hostile
    out = tmp_path / "report.html"
    write_farm_report(levels, nodes, out, title=hostile)
    page = out.read_text()
    assert "<script>" not in page
    assert "\x1b" not in page
    assert page.count("<img ") == 3
    farm((levels, nodes)).view()
