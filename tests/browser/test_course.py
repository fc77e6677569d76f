"""A long lab as a student walks it in JupyterLab, on recorded data.

Predict in the field, Keep, compare; choose a wrong answer, read why, choose the right one; write a
wrong function, read the hint, write the right one; look at the points.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perflib.course.build import build, handouts
from tests.browser.notebooks import errors, open_notebook, run_all

_RUN = """async ([id, source]) => {
  const app = window.jupyterapp;
  const content = app.shell.currentWidget.content;
  const index = content.widgets.findIndex((cell) => cell.model.id === id);
  if (index < 0) return `there is no cell ${id}`;
  content.activeCellIndex = index;
  const cell = content.widgets[index];
  if (source !== null) cell.model.sharedModel.setSource(source);
  await app.commands.execute('notebook:run-cell');
  cell.node.scrollIntoView();
  return cell.node.querySelector('.jp-OutputArea')?.innerText ?? '';
}"""


@pytest.fixture
def all_cells_are_there(tmp_path: Path) -> None:
    """JupyterLab attaches every cell, not only those that are on the screen."""
    settings = tmp_path / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    (settings / "tracker.jupyterlab-settings").write_text('{"windowingMode": "none"}')


def _run(page: Any, cell: str, source: str | None = None) -> str:
    """Write a cell, run it, and read what it shows."""
    return str(page.evaluate(_RUN, [cell, source]))


def _cells(notebook: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(notebook.read_text())["cells"]
    return found


def _cell_with(notebook: Path, text: str) -> str:
    return next(str(one["id"]) for one in _cells(notebook) if text in "".join(one["source"]))


@pytest.mark.slow  # a notebook of 60 cells and more, in a browser: minutes on a busy machine
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("all_cells_are_there")
def test_a_student_walks_through_a_lab(
    page: Any, lab_url: str, folder: Path, console: list[str], tmp_path: Path
) -> None:
    (lab,) = handouts(["tlbs_and_huge_pages"])
    (notebook,) = build(folder, [lab], "student", "intel-guest")
    (solved,) = build(tmp_path / "lecturer", [lab], "solution", "intel-guest")
    open_notebook(page, lab_url.format(path=notebook.relative_to(folder)))
    run_all(page)

    assert "not predicted yet" in _run(page, "check-reach")
    field = page.locator(".perflib-predict").filter(has_text="iTLB reach").first
    field.scroll_into_view_if_needed()
    said = field.locator(".perflib-guess-said")
    keep = field.get_by_role("button", name="Keep")
    field.locator("input").fill("many")
    keep.click()
    said.get_by_text("is no number").wait_for()
    field.locator("input").fill("77")
    keep.click()
    said.get_by_text("kept: you predict").wait_for()
    renewed = page.locator(".jp-RenderedHTMLCommon > .perflib-check")  # of cells, not run again
    renewed.get_by_text("you predicted 77").wait_for()
    field.screenshot(path=tmp_path / "predict.png")
    assert "you predicted 77" in _run(page, "check-reach")
    compare = _cell_with(notebook, 'lab.compare("iTLB reach"')
    _run(page, compare)
    assert page.locator(f'[data-cell-id="{compare}"] img, .jp-mod-active img').count()
    page.screenshot(path=tmp_path / "compare.png")

    question = page.locator(".perflib-ask").first
    question.scroll_into_view_if_needed()
    item = next(one for one in lab.lesson.items if type(one).__name__ == "Choice")
    wrong = next(key for key in item.options if key != item.right)  # type: ignore[attr-defined]
    for key, mark in ((wrong, "✘"), (item.right, "◐")):  # type: ignore[attr-defined]
        question.get_by_label(f"{key}: ").check()
        question.get_by_role("button", name="Check").click()
        question.locator(".perflib-said").get_by_text(mark).wait_for()
        question.screenshot(path=tmp_path / f"question_{key}.png")
    renewed.get_by_text("at try 2").wait_for()
    assert "at try 2" in _run(page, f"check-{item.name}")

    assert "not answered yet" in _run(page, "check-1")
    assert _run(page, "answer-1", "missed = lambda pages, entries: 0") == ""
    shown = _run(page, "check-1")
    assert "✘" in shown
    assert "Hint: " in shown
    page.screenshot(path=tmp_path / "wrong.png")
    (solution,) = (one for one in _cells(solved) if one["id"] == "solution-1")
    _run(page, "answer-1", "".join(solution["source"]))
    assert "✔" in _run(page, "check-1")
    page.screenshot(path=tmp_path / "right.png")
    assert "not answered yet" in _run(page, _cell_with(notebook, "lab.score()"))
    page.screenshot(path=tmp_path / "score.png")
    assert errors(console) == []
