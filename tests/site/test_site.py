"""The whole site: built without a warning, loads nothing from elsewhere, and can be read by all.

In steps, each well below the limit of a test: what is executed and drawn is kept for the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import started_browser
from tests.site.building import ROOT, site_module, sphinx

# A minute each where nothing else runs; many where all of it waits for two busy cores.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("site"),
    pytest.mark.timeout(1500),
]
PAGES = [
    "docs/index", "docs/start", "docs/symptoms", "docs/gallery", "docs/cases/aliasing", "docs/api",
    "docs/commands", "docs/reference", "docs/limits", "notebooks/01_kv_per_core",
    "notebooks/investigation", "docs/course/index",
    "notebooks/05_code_segment", "notebooks/03_counters",
    "notebooks/course/tlbs_and_huge_pages", "notebooks/course/aliasing_4k",
]  # fmt: skip

DARK = ["docs/index", "docs/gallery", "notebooks/01_kv_per_core", "notebooks/course/aliasing_4k"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = sphinx(ROOT, out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize("first", [0, 1])
def test_notebooks_are_executed_without_measuring(first: int) -> None:
    half = site_module("executing").execute_all(slice(first, None, 2))
    assert {name: wrong for name, (_, wrong) in half.items() if wrong} == {}
    for path, _ in half.values():
        assert str(ROOT) not in path.read_text(encoding="utf-8")


def test_figures_are_drawn_of_every_recorded_experiment() -> None:
    drawing = site_module("drawing")
    drawn = drawing.draw_all()
    assert {one.experiment for one, _ in drawn} == {name for _, name in drawing.recorded_runs()}
    for one, folder in drawn:
        assert one.figures, one.experiment
        for figure in one.figures:
            assert (folder / figure.file).stat().st_size
            assert figure.shows
            assert len(figure.code.splitlines()) >= 3


def test_the_site_is_built_without_a_warning(site: Path) -> None:
    for page in PAGES:
        assert (site / f"{page}.html").is_file()
    assert "docs/index.html" in (site / "index.html").read_text(encoding="utf-8")
    assert str(ROOT) not in (site / "notebooks/01_kv_per_core.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started_browser() as started:
        yield started


@pytest.mark.parametrize("page", PAGES)
def test_a_page_loads_nothing_from_elsewhere_and_fits_a_phone(
    browser: Any, site: Path, page: str
) -> None:
    opened = browser.new_page(viewport={"width": 390, "height": 844})
    requested: list[str] = []
    errors: list[str] = []
    opened.on("request", lambda request: requested.append(request.url))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto((site / f"{page}.html").as_uri(), wait_until="load")
    assert [url for url in requested if not url.startswith(("file:", "data:"))] == []
    assert errors == []
    assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), page
    broken = (
        "Array.from(document.images).filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
    )
    assert opened.evaluate(broken) == []
    opened.close()


# Colours come from one style sheet: a few kinds of pages show those of the dark scheme.
@pytest.mark.parametrize(
    ("page", "scheme"), [*((page, "light") for page in PAGES), *((page, "dark") for page in DARK)]
)
def test_a_page_is_accessible(browser: Any, site: Path, page: str, scheme: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright",
        reason="needs axe-core: pip install 'perflib-jupyter[dev]'",
    )
    opened = browser.new_page(viewport={"width": 1300, "height": 1600}, color_scheme=scheme)
    opened.goto((site / f"{page}.html").as_uri(), wait_until="load")
    found = axe.Axe().run(opened).response["violations"]
    serious = [
        {one["id"]: [node["html"][:120] for node in one["nodes"][:3]]}
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == [], json.dumps(serious, indent=1)
    opened.close()
