from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perflib.instruments.threads.concurrency import effective_concurrency
from perflib.instruments.threads.formats import Selection, State
from perflib.instruments.threads.intervals import states_in_bins
from perflib.instruments.threads.recording import Recording
from perflib.lab.threads.page import DRAWN, ORDERS
from perflib.lab.threads.timeline import Timeline, timeline
from perflib.model.errors import UserError
from tests.instruments.threads.made import made_recording, recording_of

MS = 1_000_000
START = 5_000_000 * MS  # of the clock
R, W, G, S, U = State.RUNNING, State.WAITING, State.READY, State.SLEEPING, State.UNKNOWN


def small(folder: Path) -> Recording:
    """Ten milliseconds of two threads; the second waits for a lock of the first."""
    return recording_of(
        folder,
        [
            [(START, START + 4 * MS, R), (START + 4 * MS, START + 10 * MS, S)],
            [
                (START, START + 2 * MS, R),
                (START + 2 * MS, START + 5 * MS, W, 0, -1, 1, 0, 1),
                (START + 5 * MS, START + 6 * MS, G, 0, -1, 1, 0, 1),
                (START + 6 * MS, START + 8 * MS, State.SPINNING),
                (START + 8 * MS, START + 9 * MS, U, 1),
            ],
        ],
        names=["main", "event-1"],
        samples=[(START + 1 * MS, 1, 4, 9), (START + 1 * MS, 1, 5, 20)],
        meta={"cpus": 2},
    )


@pytest.fixture
def widget(tmp_path: Path) -> Timeline:
    return timeline(small(tmp_path))


def ask(widget: Timeline, what: str, **content: Any) -> None:
    """What the page sends."""
    before = widget.answered
    widget._handle_custom_msg(json.loads(json.dumps({"ask": what} | content)), [])
    assert widget.answered == before + 1


def click(widget: Timeline, row: int, time_ms: float, state: int = -1) -> None:
    """Click on a column of pixels of a tenth of a millisecond."""
    start, end = (time_ms - 0.05) * MS, (time_ms + 0.05) * MS
    ask(widget, "at", row=row, start=start, end=end, state=state)


def shares(widget: Timeline) -> np.ndarray:
    """[rows, bins, state] as the page draws them, in the order of the states' numbers."""
    data = widget.data
    levels = np.frombuffer(data["levels"], np.uint8).reshape(len(data["rows"]), data["bins"], 6)
    drawn = np.diff(levels.astype(float) / 255, axis=2, prepend=0)
    return drawn[:, :, np.argsort(DRAWN)]


def numbers(widget: Timeline, name: str) -> np.ndarray:
    return np.frombuffer(widget.data[name], "<f4")


def moved(widget: Timeline) -> list[Selection]:
    """The selections that an observer hears of, each after it is drawn."""
    heard = []

    def hear(change: Any) -> None:
        assert widget.data["start"] == change.new.start_ns - START
        heard.append(change.new)

    widget.observe(hear, "selection")
    return heard


# --- what is drawn -------------------------------------------------------------------------------


def test_the_shares_that_are_sent_are_those_of_the_recording(widget: Timeline) -> None:
    for bins in (101, 100):  # some have two states, or each has one
        ask(widget, "zoom", start=0, end=10 * MS, bins=bins)
        found = states_in_bins(widget.recording, bins, Selection(START, START + 10 * MS))
        assert shares(widget) == pytest.approx(found / (10 * MS / bins), abs=1 / 255)
    drawn = shares(widget)
    assert drawn[1, 25, W] == 1
    assert drawn[1, 85, U] == 1
    assert drawn[1, 95].sum() == 0  # the thread has ended


def test_a_view_of_a_huge_recording_is_as_small_as_any(tmp_path: Path) -> None:
    threads = 3000
    intervals = [[(i * MS, i * MS + MS // 2, i % 6) for i in range(20)] for _ in range(threads)]
    widget = timeline(recording_of(tmp_path, intervals), rows_per_page=64)
    ask(widget, "zoom", start=0, end=20 * MS, bins=100_000)
    sent = widget.data
    size = sum(len(value) for value in sent.values() if isinstance(value, bytes))
    rest = {name: value for name, value in sent.items() if not isinstance(value, bytes)}
    assert size + len(json.dumps(rest)) < 1_000_000
    assert sent["bins"] == 2000
    assert sent["pages"] == 47
    assert sent["found"] == sent["threads"] == threads


# --- what the page asks for ----------------------------------------------------------------------


def test_zoom_and_back(widget: Timeline) -> None:
    heard = moved(widget)
    ask(widget, "zoom", start=2 * MS, end=6 * MS, bins=800)
    ask(widget, "zoom", start=2.5 * MS, end=3 * MS, bins=800)
    assert widget.data["bins"] == 800
    assert widget.data["back"]
    ask(widget, "back")
    assert (widget.data["start"], widget.data["end"]) == (2 * MS, 6 * MS)
    ask(widget, "back")
    ask(widget, "back")  # there is nothing before the first view
    assert not widget.data["back"]
    spans = [tuple(time - START for time in widget.recording.span(one)) for one in heard]
    whole, part = (0, 10 * MS), (2 * MS, 6 * MS)
    assert spans == [part, (5 * MS // 2, 3 * MS), part, whole]


def test_a_zoom_stays_within_the_recording_and_above_a_microsecond(widget: Timeline) -> None:
    ask(widget, "zoom", start=-5 * MS, end=99 * MS, bins=5)
    assert widget.selection == Selection(START, START + 10 * MS, None)
    ask(widget, "zoom", start=10 * MS - 1, end=10 * MS, bins=800)
    assert widget.selection == Selection(START + 10 * MS - 1000, START + 10 * MS, None)
    assert widget.data["axis"] == "0.009999 s since the recording began, and (ns)"
    ask(widget, "zoom", start=20 * MS, end=30 * MS, bins=800)
    assert "no time from" in widget.message


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("start", ["b-10", "b-9", "a"]),
        ("name", ["a", "b-9", "b-10"]),
        ("waiting", ["a", "b-10", "b-9"]),
        ("CPU time", ["b-9", "b-10", "a"]),
    ],
)
def test_orders(tmp_path: Path, order: str, names: list[str]) -> None:
    recording = recording_of(
        tmp_path,
        [[(0, 5, R), (5, 8, W)], [(1, 9, R)], [(2, 3, State.SPINNING), (3, 10, W)]],
        names=["b-10", "b-9", "a"],
    )
    widget = timeline(recording)
    ask(widget, "order", order=order)
    assert widget.data["names"] == names
    assert widget.data["orders"] == list(ORDERS)
    ask(widget, "order", order="colour")
    assert "unknown order 'colour'" in widget.message
    assert widget.data["order"] == order


def test_pages_and_the_filter(tmp_path: Path) -> None:
    widget = timeline(made_recording(tmp_path, 30, 0.1), rows_per_page=8)
    assert widget.data["pages"] == 4
    ask(widget, "page", page=3)
    assert widget.data["names"] == [f"event-{i}" for i in range(23, 29)]
    ask(widget, "page", page=99)
    assert widget.data["page"] == 3
    ask(widget, "filter", threads="^event-1")
    assert (widget.data["page"], widget.data["found"], widget.data["threads"]) == (0, 11, 30)
    assert widget.selection.rows == (2, *range(11, 21))
    work = numbers(widget, "working").mean()
    assert work == pytest.approx(
        effective_concurrency(widget.recording, Selection(rows=widget.selection.rows)), rel=1e-3
    )
    ask(widget, "order", order="CPU time")
    assert widget.selection.rows == (2, *range(11, 21))
    assert widget.chosen == ()
    ask(widget, "filter", threads="")
    assert widget.selection.rows is None


def test_a_filter_may_leave_no_thread(widget: Timeline) -> None:
    ask(widget, "filter", threads="nobody")
    assert widget.message == ""
    assert widget.data["rows"] == []
    assert widget.selection.rows == ()
    assert not numbers(widget, "working").any()


def test_threads_are_chosen_and_dropped(widget: Timeline) -> None:
    heard = moved(widget)
    ask(widget, "choose", row=1)
    assert widget.data["chosen"] == [0, 1]
    ask(widget, "choose", row=0)
    ask(widget, "choose", row=1)
    ask(widget, "choose", row=0)
    assert [one.rows for one in heard] == [(1,), (1, 0), (0,), None]
    ask(widget, "choose", row=7)
    assert "no row 7: the recording has 2 threads" in widget.message


def test_a_click_shows_what_the_thread_did(widget: Timeline) -> None:
    click(widget, 1, 3)
    place = widget.place
    assert place["name"] == "event-1"
    assert place["state"] == "waiting for a lock"
    assert (place["start"], place["end"]) == (2 * MS, 5 * MS)
    assert dict(place["facts"]) == {
        "from": "0.002000000 s",
        "to": "0.005000000 s",
        "for": "3.00 ms",
        "lock": "formula_lock",
        "held by": "main",
    }
    assert place["stack"] == ["lock_wait", "construct", "formula", "event_loop", "main"]


def test_a_click_on_a_run_shows_where_most_of_its_samples_are(widget: Timeline) -> None:
    click(widget, 1, 1)
    assert widget.place["where"] == "where 69 % of its samples are"
    assert widget.place["stack"] == ["scatter", "physics", "event_loop", "main"]
    click(widget, 0, 1)
    assert widget.place["where"] == "where it is was not recorded"
    assert widget.place["stack"] == []


def test_a_click_on_a_column_of_many_shows_the_longest_of_the_state_pointed_at(
    tmp_path: Path,
) -> None:
    edges = np.cumsum([0, *range(1, 301)]).tolist()
    states = [(edges[i], edges[i + 1], W if i % 3 == 0 else R) for i in range(300)]
    widget = timeline(recording_of(tmp_path, [states]))
    ask(widget, "at", row=0, start=0, end=edges[150], state=DRAWN.index(W))
    assert (widget.place["start"], widget.place["end"]) == (edges[147], edges[148])
    note = dict(widget.place["facts"])["column"]
    assert note == "the longest of 50 of its state that it has here: zoom in for others"
    ask(widget, "at", row=0, start=0, end=edges[150], state=-1)
    assert widget.place["end"] == edges[150]
    ask(widget, "at", row=0, start=0, end=edges[150], state=DRAWN.index(S))  # there is none
    assert widget.place["state"]
    assert "column" not in dict(widget.place["facts"])


def test_what_is_uncertain_is_said(widget: Timeline) -> None:
    click(widget, 1, 8.5)
    assert widget.place["state"] == "unknown (lost events)"
    assert "events were lost" in dict(widget.place["facts"])["note"]
    click(widget, 1, 9.5)  # it has ended
    assert widget.place["state"] == ""


# --- what a program does -------------------------------------------------------------------------


def test_impossible_pages(tmp_path: Path) -> None:
    recording = small(tmp_path)
    for rows in (0, 65):
        with pytest.raises(UserError, match="from 1 to 64"):
            timeline(recording, rows_per_page=rows)


def test_the_last_view_is_in_the_widgets_state(widget: Timeline) -> None:
    """A saved notebook has it: no kernel is asked when it is opened."""
    state = widget.get_state()
    assert state["data"]["levels"] == widget.data["levels"]
    assert "selection" not in state
    assert len(json.dumps(state["data"], default=lambda _: "")) < 10_000
