"""The KV notebook in JupyterLab: run all, change a field, run, see the plot change, stop."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from perflib.model.paths import notebooks_dir

_PATIENCE_MS = 300_000
_FORM = ".perflib-form-kv_per_core"
_RUN_ALL = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  const panel = app.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
  await app.commands.execute('notebook:run-all-cells');
}"""
# What the console says of itself that is no fault of the notebook.
_BENIGN = (
    r"favicon",  # the server has none under this address
)


def _small_copy(target: Path) -> None:
    """The notebook with small parameters and without the solutions, which measure again."""
    notebook = nbformat.read(notebooks_dir() / "01_kv_per_core.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    notebook.cells = [
        cell for cell in notebook.cells if "solution" not in cell.metadata.get("tags", [])
    ]
    (cell,) = (c for c in notebook.cells if "parameters" in c.metadata.get("tags", []))
    cell.source = re.sub(r"(?m)^budget_s = .*$", "budget_s = 3.0", cell.source)
    cell.source = re.sub(r"(?m)^events = .*$", "events = 10", cell.source)
    nbformat.write(notebook, target)  # type: ignore[no-untyped-call]


def _field(page: Any, name: str) -> Any:
    return page.locator(f'{_FORM} input[title^="{name}:"], {_FORM} [title^="{name}:"] input').first


@pytest.mark.timeout(900)
def test_the_form_runs_draws_and_stops_in_jupyterlab(
    page: Any, lab_url: str, folder: Path, console: list[str], tmp_path: Path
) -> None:
    _small_copy(folder / "kv.ipynb")
    page.set_default_timeout(_PATIENCE_MS)
    page.goto(lab_url.format(path="kv.ipynb"))
    page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.context")
    page.evaluate(_RUN_ALL)
    form = page.locator(_FORM)
    form.wait_for()
    form.scroll_into_view_if_needed()
    complaints = page.locator('[data-mime-type="application/vnd.jupyter.stderr"]')
    assert complaints.all_inner_texts() == []

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
    assert [said for said in console if not any(re.search(b, said) for b in _BENIGN)] == []
