"""The views of threads in JupyterLab: drawn, zoomed, clicked, by mouse and by keys."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perflib.instruments.threads.formats import State
from perflib.lab.threads.page import colours
from perflib.lab.threads.standalone import write_html
from tests.browser.notebooks import errors, open_notebook, run_all, write_notebook
from tests.instruments.threads.made import recording_of

_CELL = """
from pathlib import Path
from perflib.lab.threads.views import thread_view
from tests.instruments.threads.made import recording_of
MS = 1_000_000
waits = [(20 * i * MS, 20 * i * MS + 10 * MS, 0) for i in range(5)]
for i in range(5):
    waits.append((20 * i * MS + 10 * MS, 20 * i * MS + 20 * MS, 2, 0, -1, i % 2, 0, i % 2))
recording = recording_of(
    Path("recording"),
    [[(0, 100 * MS, 0)], sorted(waits)] + [[(0, 100 * MS, 3)]] * 10,
    names=["main", "<b>x</b>\\x1b"] + [f"idle-{i}" for i in range(10)],
    samples=[(50 * MS, 0, 4, 100 * MS)],
    meta={"cpus": 2},
)
view = thread_view(recording, rows_per_page=5)
view
"""
_SHUT_DOWN = "() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()"
_COLOUR = """(canvas, [share, row]) => {
  const x = Math.floor(share * canvas.width);
  const [r, g, b] = canvas.getContext('2d').getImageData(x, row * 18 + 9, 1, 1).data;
  return '#' + [r, g, b].map((part) => part.toString(16).padStart(2, '0')).join('');
}"""
_MS = 1_000_000
_TRUST = "from nbformat.sign import TrustNotebookApp as app; app.launch_instance()"


class Graph:
    """The timeline on a page, and what a person does with it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.stage = page.locator(".perflib-timeline-stage")
        self.selected = page.locator(".perflib-selected")
        self.place = page.locator(".perflib-timeline-place")
        self.names = page.locator(".perflib-timeline-name")

    def point(self, share: float, row: int) -> tuple[float, float]:
        box = self.stage.bounding_box()
        return box["x"] + share * box["width"], box["y"] + 18 * row + 9

    def drag(self, start: float, end: float) -> None:
        self.page.mouse.move(*self.point(start, 0))
        self.page.mouse.down()
        self.page.mouse.move(*self.point(end, 1), steps=5)
        self.page.mouse.up()

    def click(self, share: float, row: int) -> None:
        self.page.mouse.click(*self.point(share, row))

    def colour(self, share: float, row: int) -> str:
        canvas = self.page.locator(".perflib-timeline-rows")
        return str(canvas.evaluate(_COLOUR, [share, row]))

    def span(self, words: str = "") -> tuple[float, float]:
        """Start and end of the selection in ms, once its text has some words."""
        self.selected.filter(has_text=words).wait_for()
        found = re.search(r"([\d.]+) s to ([\d.]+) s", self.selected.inner_text())
        assert found is not None
        return 1e3 * float(found[1]), 1e3 * float(found[2])

    def wait_for_note(self, words: str) -> None:
        self.page.locator(".perflib-timeline-note").filter(has_text=words).wait_for()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)


def opened(page: Any, url: str) -> Graph:
    open_notebook(page, url)
    return Graph(page)


@pytest.mark.timeout(300)
def test_threads_over_time(
    page: Any, lab_url: str, folder: Path, console: list[str], tmp_path: Path
) -> None:
    path = write_notebook(folder / "threads.ipynb", _CELL)
    graph = opened(page, lab_url.format(path=path.name))
    run_all(page)
    page.locator(".perflib-timeline").wait_for()

    # What is drawn.
    assert graph.names.all_inner_texts() == ["main", r"<b>x</b>\x1b", "idle-0", "idle-1", "idle-2"]
    seen = [graph.colour(share, row) for share, row in ((0.5, 0), (0.05, 1), (0.15, 1), (0.5, 2))]
    states = (State.RUNNING, State.RUNNING, State.WAITING, State.SLEEPING)
    assert seen == [colours()[state] for state in states]
    chart = page.locator(".perflib-timeline-chart").text_content()
    assert "2 cores" in chart
    assert "time since the recording began (ms)" in chart
    page.mouse.move(*graph.point(0.15, 1))
    tip = page.locator(".perflib-timeline-tip").inner_text().splitlines()
    assert tip[0] == r"<b>x</b>\x1b"
    assert tip[1].startswith("at 0.015")
    assert tip[2] == "waiting for a lock: 100 %"
    graph.page.locator(".perflib-threads").screenshot(path=tmp_path / "whole.png")

    # Zoom by dragging, and back.
    assert graph.span() == (0, 100)
    graph.drag(0.2, 0.4)
    assert graph.span("(20") == pytest.approx((20, 40), abs=0.5)
    assert graph.colour(0.25, 1) == colours()[State.RUNNING]
    assert graph.colour(0.75, 1) == colours()[State.WAITING]
    threads = page.locator(".perflib-choice-row").all_inner_texts()
    assert "10.0 ms" in next(text for text in threads if text.startswith("<b>x"))

    # A click shows the wait, its lock and its stack.
    graph.click(0.75, 1)
    graph.place.get_by_text(r"<b>x</b>\x1b: waiting for a lock").wait_for()
    facts = graph.place.inner_text()
    assert "10.0 ms" in facts
    assert "formula_lock" in facts
    stack = graph.place.locator(".perflib-timeline-frame").all_inner_texts()
    assert stack == ["lock_wait", "construct", "formula", "event_loop", "main"]
    mark = page.locator(".perflib-timeline-mark").bounding_box()
    stage = graph.stage.bounding_box()
    assert mark["width"] / stage["width"] == pytest.approx(0.5, abs=0.03)
    graph.page.locator(".perflib-threads").screenshot(path=tmp_path / "clicked.png")
    page.get_by_role("button", name="Zoom to it").click()
    assert graph.span("(30.0 ms)") == pytest.approx((20, 50), abs=0.5)

    # Keys.
    graph.stage.focus()
    graph.press("Home")
    assert graph.span("(100 ms)") == (0, 100)
    graph.press("Backspace")
    assert graph.span("(30.0 ms)") == pytest.approx((20, 50), abs=0.5)
    graph.press("Home")
    graph.span("(100 ms)")
    graph.press("ArrowUp", "ArrowUp", *["ArrowLeft"] * 40, "Enter")
    graph.place.get_by_text("main: running").wait_for()
    stack = graph.place.locator(".perflib-timeline-frame").all_inner_texts()
    assert stack == ["physics", "event_loop", "main"]
    graph.press("+")
    low, high = graph.span("(50.0 ms)")
    graph.press("PageDown")
    graph.wait_for_note("Threads 6 to 10 of 12")
    graph.press("Shift+ArrowRight")
    graph.wait_for_note("Threads 6 to 10 of 12")
    page.wait_for_function(
        "(old) => !document.querySelector('.perflib-selected').innerText.includes(old)",
        arg=f"{low / 1e3:.6f} s to",
    )
    assert graph.span("(50.0 ms)") == pytest.approx((low + 25, high + 25), abs=0.5)

    # The wheel scrolls the page, and zooms with Ctrl.
    graph.press("Home")
    graph.span("(100 ms)")
    page.mouse.move(*graph.point(0.0, 1))
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    assert graph.span("(66.7 ms)") == pytest.approx((0, 66.7), abs=0.5)

    # Names: a filter, a wrong one, a choice.
    field = page.get_by_label("threads", exact=True)
    field.fill("idle-(")
    field.press("Enter")
    page.get_by_role("alert").filter(has_text="no regular expression").wait_for()
    field.fill("b>|main")
    field.press("Enter")
    graph.wait_for_note("Threads 1 to 2 of 2 whose names match (of 12)")
    assert page.get_by_role("alert").inner_text() == ""
    graph.names.nth(1).click()
    graph.selected.filter(has_text="1 thread:").wait_for()
    assert graph.names.nth(1).get_attribute("aria-pressed") == "true"

    # A lock restricts the paths.
    page.get_by_role("tab", name="Locks").click()
    row = page.locator(".perflib-choice-row", has_text="formula_lock")
    row.wait_for()
    paths = page.locator("td.path")
    paths.first.wait_for()
    assert paths.count() == 2
    row.focus()
    page.keyboard.press("Enter")
    page.get_by_text("From where formula_lock was waited for").wait_for()
    assert paths.all_inner_texts() == ["lock_wait ← construct ← formula ← event_loop ← main"]
    assert row.get_attribute("aria-selected") == "true"
    graph.page.locator(".perflib-threads").screenshot(path=tmp_path / "locks.png")
    assert errors(console) == []

    # Without a kernel the last view stands.
    page.evaluate(_SHUT_DOWN)
    graph.drag(0.2, 0.4)
    page.get_by_role("alert").filter(has_text="does not answer").wait_for()
    assert graph.colour(0.05, 1) == colours()[State.RUNNING]


@pytest.mark.timeout(300)
def test_a_notebook_that_was_run_elsewhere_shows_its_view(
    page: Any, lab_url: str, folder: Path, console: list[str], tmp_path: Path
) -> None:
    """A batch job's notebook has its views, with nothing behind them."""
    source = write_notebook(tmp_path / "threads.ipynb", _CELL)
    executed = folder / "executed.ipynb"
    argv = [sys.executable, "-m", "papermill", str(source), str(executed), "--no-progress-bar"]
    subprocess.run(argv, cwd=folder, check=True, capture_output=True)
    # JupyterLab shows widgets only of notebooks that its user trusts.
    trusted = os.environ | {"JUPYTER_DATA_DIR": str(tmp_path / "data")}
    subprocess.run([sys.executable, "-c", _TRUST, str(executed)], env=trusted, check=True)
    graph = opened(page, lab_url.format(path=executed.name))
    graph.wait_for_note("Threads 1 to 5 of 12")
    assert graph.names.first.inner_text() == "main"
    assert graph.colour(0.15, 1) == colours()[State.WAITING]
    assert errors(console) == []
    graph.drag(0.2, 0.4)
    page.get_by_role("alert").filter(has_text="does not answer").wait_for()
    assert graph.colour(0.15, 1) == colours()[State.WAITING]


@pytest.fixture
def alone(tmp_path: Path) -> str:
    """The address of a page that stands alone."""
    recording, path = recording_of(
        tmp_path / "recording",
        [
            [(0, 40 * _MS, 0), (40 * _MS, 100 * _MS, 3)],
            [(0, 10 * _MS, 0), (10 * _MS, 40 * _MS, 2, 0, -1, 1, 0, 1), (40 * _MS, 70 * _MS, 0),
             (70 * _MS, 100 * _MS, 3)],
            [(0, 20 * _MS, 0), (20 * _MS, 70 * _MS, 2, 0, -1, 0, 1, 0), (70 * _MS, 100 * _MS, 0)],
        ],
        names=["main", "<img src=x>", "third"],
        samples=[(5 * _MS, 0, 6, 40 * _MS), (50 * _MS, 1, 4, 30 * _MS)],
        meta={"cpus": 2},
    ), tmp_path / "page.html"  # fmt: skip
    write_html(recording, path, "Alone")
    return path.as_uri()


def test_a_page_that_stands_alone(
    page: Any, alone: str, console: list[str], tmp_path: Path
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(alone)
    graph = Graph(page)
    graph.wait_for_note("Threads 1 to 3 of 3")
    assert graph.names.all_inner_texts() == ["main", "<img src=x>", "third"]
    seen = [graph.colour(share, row) for share, row in ((0.2, 0), (0.2, 1), (0.9, 1), (0.5, 2))]
    states = (State.RUNNING, State.WAITING, State.SLEEPING, State.WAITING)
    assert seen == [colours()[state] for state in states]
    assert page.locator(".perflib-timeline-over .arrow").count() == 2
    assert "formula_lock" in page.locator(".perflib-timeline-over").text_content()

    # A wait's wake-ups, by the mouse at rest and by a click.
    page.mouse.move(*graph.point(0.5, 2))
    page.locator(".perflib-timeline-over .link").first.wait_for()
    assert page.locator(".perflib-timeline-over .link").count() == 2
    assert page.locator(".perflib-timeline-over .critical").count() == 1
    graph.click(0.5, 2)
    graph.place.get_by_text("third: waiting for a lock").wait_for()
    listed = graph.place.locator(".perflib-timeline-link").all_inner_texts()
    assert [text.partition(": ")[2] for text in listed] == [
        "<img src=x> → third through output_module",
        "main → <img src=x> through formula_lock",
    ]
    page.get_by_text("critical path of the whole job").wait_for()
    page.screenshot(path=tmp_path / "alone.png", full_page=True)

    # Filters are in the address; back and forward work.
    page.get_by_label("locks", exact=True).fill("formula")
    page.get_by_label("locks", exact=True).press("Enter")
    page.wait_for_url("**#locks=formula")
    graph.drag(0.2, 0.6)
    page.wait_for_url("**from=*")
    tables = page.locator("#perflib-tables")
    tables.get_by_text("formula_lock").wait_for()
    assert "output_module" not in tables.inner_text()
    page.go_back()
    page.wait_for_url("**#locks=formula")
    graph.wait_for_note("100 ms of 100 ms shown")
    page.go_back()
    tables.get_by_text("output_module").wait_for()
    page.go_forward()
    tables.get_by_text("output_module").wait_for(state="detached")

    # An address is a view; one that is wrong says so, and everything is shown.
    page.goto("about:blank")
    page.goto(f"{alone}#threads=third&from=0.02&to=0.06")
    graph.wait_for_note("40.0 ms of 100 ms shown")
    assert graph.names.all_inner_texts() == ["third"]
    for wrong in ("threads=a(", "colour=red", "from=9", "page=-1", "order=size", "chosen=7"):
        page.goto("about:blank")
        page.goto(f"{alone}#{wrong}")
        page.get_by_role("alert").filter(has_text="Everything is shown").wait_for()
        assert graph.names.count() == 3
    assert errors(console) == []
    assert {url.partition("#")[0] for url in asked} <= {alone, "about:blank"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_does_not_scroll_sideways(page: Any, alone: str, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(alone)
    page.locator(".perflib-timeline-name").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", back)[:3])) > 380) == (scheme == "light")
