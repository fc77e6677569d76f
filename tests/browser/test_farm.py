"""A farm's view in JupyterLab: another node is chosen, its figures and verdicts follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.notebooks import errors, open_notebook, run_all, write_notebook

_SOURCE = """
import perflib as pl

farm = pl.simulated_farm(12, 8, 4, models=["m"], slow_nodes={3: 0.2}, slow_core={"m": (5, 0.1)})
pl.farm(farm).view()
"""
_IMAGES = "[...document.querySelectorAll('.jp-OutputArea img')]"


@pytest.mark.timeout(600)
def test_a_node_is_chosen_and_drawn(
    page: Any, lab_url: str, folder: Path, console: list[str], tmp_path: Path
) -> None:
    write_notebook(folder / "farm.ipynb", _SOURCE)
    open_notebook(page, lab_url.format(path="farm.ipynb"))
    run_all(page)
    page.wait_for_function(f"() => {_IMAGES}.length === 2 && {_IMAGES}.every(i => i.naturalWidth)")
    area = page.locator(".jp-OutputArea").first
    assert "simulated0004 is slower than the other nodes" in area.inner_text()
    before = page.evaluate(f"() => {_IMAGES}[1].src")
    area.locator("select").nth(1).select_option("simulated0002")
    page.wait_for_function(f"before => {_IMAGES}[1].src !== before", arg=before)
    page.wait_for_function(
        "() => !document.querySelector('.jp-OutputArea').innerText.includes('simulated0004 is')"
    )
    area.locator("select").nth(2).select_option(index=1)
    page.wait_for_function(
        "() => document.querySelector('.jp-OutputArea').innerText.includes('unknown run')"
        " || document.querySelector('.jp-OutputArea').innerText.includes('there are none')"
    )
    area.screenshot(path=tmp_path / "view.png")
    assert errors(console) == []
