"""The start page in JupyterLab: read, searched, opened by keyboard, and read by everyone.

Enter would belong to JupyterLab, which edits the cell.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from perflib.store import run_files
from perflib.store.paths import notebooks_dir
from tests.browser.notebooks import errors, open_notebook, run_all
from tests.stored import RUNS

_HOME = ".perflib-home"
_VIOLATIONS = f"""async () => (await axe.run('{_HOME}', {{resultTypes: ['violations']}})).violations
  .map((one) => one.id + ': ' + one.nodes.map((node) => node.html).join(' | '))"""


def _hold_a_run(home: Path) -> None:
    run = run_files.load(RUNS / "kv_per_core.parquet")
    (home / "runs").mkdir(parents=True)
    shutil.copy(RUNS / "kv_per_core.parquet", home / "runs" / f"{run.id}.parquet")


@pytest.mark.timeout(900)
def test_the_start_page_in_jupyterlab(
    page: Any, lab_url: str, folder: Path, console: list[str], tmp_path: Path
) -> None:
    _hold_a_run(tmp_path / "home")
    for name in ("home", "19_contention"):
        shutil.copy(notebooks_dir() / f"{name}.ipynb", folder)
    open_notebook(page, lab_url.format(path="home.ipynb"))
    run_all(page)
    home = page.locator(_HOME)
    home.get_by_role("img").first.wait_for()

    home.get_by_label("runs", exact=True).select_option(index=0)
    home.get_by_role("button", name="Open").press("Space")
    home.get_by_role("img", name=" of kv_per_core").wait_for()

    home.get_by_label("search").last.fill("false sharing")
    button = home.get_by_role("button", name="contention")
    home.get_by_role("button", name="what_if").wait_for(state="hidden")
    link = home.get_by_role("link", name="notebook 19_contention")
    assert (
        link.evaluate("(one) => one.href").split("?")[0].endswith("/lab/tree/19_contention.ipynb")
    )
    button.press("Space")
    home.locator(".perflib-form-contention").wait_for()

    axe = pytest.importorskip(
        "axe_playwright_python", reason="needs axe-core: pip install 'perflib-jupyter[dev]'"
    )
    page.evaluate((Path(axe.__path__[0]) / "axe.min.js").read_text())
    assert page.evaluate(_VIOLATIONS) == []
    home.screenshot(path=tmp_path / "home.png")
    assert errors(console) == []
