"""The report of an investigation in Chromium: accessible, on a screen, a phone and paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perflib.investigation.conclusion import conclude
from perflib.lab.investigation_report import write_investigation
from tests.browser.conftest import inaccessible
from tests.lab.test_investigation_report import measured

_OPEN = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
_WIDE = "document.documentElement.scrollWidth"
_DESKTOP, _PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    known = measured("symptom", "levels")
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_investigation(known, conclude(known), path)
    return path.as_uri()


@pytest.mark.parametrize("size", [_DESKTOP, _PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("opened", [False, True], ids=["folded", "open"])
def test_everyone_can_read_it(
    page: Any, report: str, size: Any, opened: bool, console: list[str], tmp_path: Path
) -> None:
    page.set_viewport_size(size)
    page.goto(report)
    page.screenshot(path=tmp_path / "first.png")
    if opened:
        page.evaluate(_OPEN)
    assert inaccessible(page) == []
    assert page.evaluate(_WIDE) <= size["width"]  # nothing is cut off, or scrolls sideways
    assert console == []


def test_the_first_screen_has_the_verdict_and_the_portrait(page: Any, report: str) -> None:
    page.set_viewport_size(_DESKTOP)
    page.goto(report)
    headline = page.locator("h1").bounding_box()
    assert headline["y"] < 100
    picture = page.locator(".portrait img")
    assert picture.evaluate("(image) => image.complete && image.naturalWidth > 0")
    assert picture.bounding_box()["y"] < 900
    assert page.locator("details").first.get_attribute("open") is None
    assert page.locator("details figure").first.is_hidden()


def test_on_paper_steps_are_unfolded_and_tables_fit(page: Any, report: str) -> None:
    page.set_viewport_size({"width": 720, "height": 1020})
    page.goto(report)
    page.emulate_media(media="print")
    assert page.locator("details figure").first.bounding_box()["height"] > 100
    assert page.locator("nav").is_hidden()
    assert page.evaluate(_WIDE) <= 720
