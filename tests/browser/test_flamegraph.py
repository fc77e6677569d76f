"""The flame graph in JupyterLab: drawn, zoomed, searched, and no error in the console."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.notebooks import errors, open_notebook, run_all, write_notebook

_CELL = """
from perflib.lab.flamegraph import flame_graph
from tests.instruments.profile.tables import samples_of
graph = flame_graph(
    samples_of({"main;track;locate": 50, "main;track;scatter": 30, "main;read": 20}),
    samples_of({"main;track;locate": 40, "main;track;scatter": 40, "main;read": 20}),
)
graph
"""


def _frame(page: Any, name: str) -> Any:
    return page.locator(".perflib-flame-frame", has_text=re.compile(f"^{name}$"))


def _span(page: Any, name: str) -> tuple[float, float]:
    """Left end and width of a frame, as shares of the graph's width."""
    graph = page.locator(".perflib-flame-graph").bounding_box()
    frame = _frame(page, name).bounding_box()
    return (frame["x"] - graph["x"]) / graph["width"], frame["width"] / graph["width"]


@pytest.mark.timeout(300)
def test_the_flame_graph_zooms_searches_and_turns(
    page: Any, lab_url: str, folder: Path, console: list[str], tmp_path: Path
) -> None:
    path = write_notebook(folder / "flame.ipynb", _CELL)
    open_notebook(page, lab_url.format(path=path.name))
    run_all(page)
    graph = page.locator(".perflib-flame")
    graph.wait_for()
    assert page.locator(".perflib-flame-frame").count() == 6

    assert _span(page, "locate") == pytest.approx((0.2, 0.5), abs=0.01)
    assert "10 points" in page.locator(".perflib-flame-legend").inner_text()

    _frame(page, "locate").hover()
    tip = page.locator(".perflib-flame-tip").inner_text()
    assert tip.splitlines() == [
        "locate",
        "/usr/bin/job",
        "50 samples, 50.00 % of all",
        "itself: 50, 50.00 % of all",
        "against the base: +10.00 points",
    ]
    graph.screenshot(path=tmp_path / "whole.png")

    _frame(page, "track").click()
    assert _span(page, "track") == pytest.approx((0, 1), abs=0.01)
    assert _span(page, "locate") == pytest.approx((0, 0.625), abs=0.01)
    assert _frame(page, "read").count() == 0
    assert "Zoomed into track: 80.00 % of all." in page.locator(".perflib-flame-note").inner_text()

    search = page.get_by_role("searchbox", name="Search functions")
    search.fill("SCAT")
    assert page.locator(".perflib-flame-found").inner_text() == "37.50 % matched (30 samples)"
    assert page.locator(".perflib-flame-frame.found").all_inner_texts() == ["scatter"]

    page.get_by_role("button", name="Reset").click()
    assert page.locator(".perflib-flame-found").inner_text() == "30.00 % matched (30 samples)"
    assert _frame(page, "read").count() == 1
    search.fill("t")  # track and, within it, scatter and locate: counted once
    assert page.locator(".perflib-flame-found").inner_text() == "80.00 % matched (80 samples)"

    def heights() -> tuple[float, float]:
        return _frame(page, "main").bounding_box()["y"], _frame(page, "locate").bounding_box()["y"]

    main_y, locate_y = heights()
    assert main_y > locate_y
    page.get_by_role("button", name="Callees below").click()
    page.get_by_role("button", name="Callees above").wait_for()
    main_y, locate_y = heights()
    assert main_y < locate_y
    graph.screenshot(path=tmp_path / "turned.png")
    assert errors(console) == []
