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
from tests.browser.conftest import inaccessible
from tests.browser.notebooks import errors, open_notebook, run_all
from tests.stored import RUNS

_HOME = ".perflib-home"


@pytest.mark.timeout(900)
def test_the_start_page_in_jupyterlab(
    page: Any, lab_url: str, folder: Path, console: list[str], tmp_path: Path
) -> None:
    run = run_files.load(RUNS / "kv_per_core.parquet")
    run_files.save(run, tmp_path / "home" / "runs" / f"{run.id}.parquet")
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

    assert inaccessible(page, f"'{_HOME}'") == []
    home.screenshot(path=tmp_path / "home.png")
    assert errors(console) == []
