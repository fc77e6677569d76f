"""The KV notebook in JupyterLab: run all, change a field, run, see the plot change, stop."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from perflib.store.paths import notebooks_dir
from tests.browser.notebooks import errors, open_notebook, run_all

_FORM = ".perflib-form-kv_per_core"


def _small_copy(target: Path) -> None:
    """The notebook with small parameters and without the solutions, which measure again."""
    notebook = nbformat.read(notebooks_dir() / "01_kv_per_core.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    notebook.cells = [
        cell for cell in notebook.cells if "solution" not in cell.metadata.get("tags", [])
    ]
    (cell,) = (c for c in notebook.cells if "parameters" in c.metadata.get("tags", []))
    cell.source += '\nconditions = {"budget_s": 2.0}\nevents = 10'
    nbformat.write(notebook, target)  # type: ignore[no-untyped-call]


def _field(page: Any, name: str) -> Any:
    return page.locator(_FORM).get_by_label(name).first


@pytest.mark.timeout(900)
def test_the_form_runs_draws_and_stops_in_jupyterlab(
    page: Any, lab_url: str, folder: Path, console: list[str], tmp_path: Path
) -> None:
    _small_copy(folder / "kv.ipynb")
    open_notebook(page, lab_url.format(path="kv.ipynb"))
    run_all(page)
    form = page.locator(_FORM)
    form.wait_for()
    form.scroll_into_view_if_needed()

    run, stop = form.get_by_role("button", name="Run"), form.get_by_role("button", name="Stop")
    field = _field(page, "budget_s")
    field.fill("-5")
    page.wait_for_function(
        "() => document.querySelector('.perflib-message')?.innerText.includes('budget_s')"
    )
    assert run.is_disabled()
    field.fill("600")
    _field(page, "precision_percent").fill("0.001")  # so that it does not end by itself
    page.wait_for_function(
        f"() => [...document.querySelectorAll('{_FORM} button')]"
        ".some(b => b.innerText.includes('Run') && !b.disabled)"
    )
    run.click()

    image = form.locator("img")
    image.wait_for()
    first = image.get_attribute("src")
    page.wait_for_function(
        f"before => document.querySelector('{_FORM} img').src !== before", arg=first
    )
    stop.click()
    page.wait_for_function(
        "() => document.querySelector('.perflib-status')?.innerText.includes('interrupted')"
    )
    status = form.locator(".perflib-status").inner_text()
    assert re.fullmatch(r"interrupted: \d+ samples kept as run kv_per_core-\S+", status.strip())
    form.locator("table.perflib-table").wait_for()
    form.screenshot(path=tmp_path / "stopped.png")
    assert errors(console) == []
