"""A notebook in JupyterLab: written, opened, run, and what its page complains of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat

_TOP = Path(__file__).parents[2]
_PATIENCE_MS = 120_000
_RUN_ALL = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  const panel = app.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
  await app.commands.execute('notebook:run-all-cells');
  return panel.context.model.toJSON().cells
    .flatMap((cell) => cell.outputs ?? [])
    .filter((output) => output.output_type === 'error' || output.name === 'stderr')
    .map((output) => output.evalue ?? output.text);
}"""
_BENIGN = re.compile("favicon")  # the server has none under this address


def write_notebook(path: Path, source: str) -> Path:
    """A notebook of one cell, which may import the tests' helpers."""
    source = f"import sys\nsys.path.insert(0, {str(_TOP)!r})\n{source.strip()}"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])  # type: ignore[no-untyped-call]
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
    return path


def open_notebook(page: Any, url: str) -> None:
    """Open a notebook by its address, as JupyterLab shows it."""
    page.set_default_timeout(_PATIENCE_MS)
    page.goto(url)
    page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.context")


def run_all(page: Any) -> None:
    """Run all cells to their end; none may fail, or say anything to stderr."""
    said = page.evaluate(_RUN_ALL)
    assert said == [], said


def errors(console: list[str]) -> list[str]:
    """What the page's console said that is a fault of the notebook."""
    return [said for said in console if not _BENIGN.search(said)]
