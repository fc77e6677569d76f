"""Arrows, chains and the critical path as the timeline draws them, and its filters."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from perflib.instruments.threads.formats import Selection, State
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.use import use_of_time
from perflib.instruments.threads.wakeups import wakeups
from perflib.lab.threads import transitions
from perflib.lab.threads.timeline import timeline
from perflib.lab.threads.views import thread_view
from perflib.model.errors import UserError
from tests.instruments.threads.made import made_recording, recording_of
from tests.lab.threads.test_timeline import ask

MS = 1_000_000
R, G, W, S = State.RUNNING, State.READY, State.WAITING, State.SLEEPING


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """A holds a lock until 4 ms; B has it until 7 ms; C waits for it from 2 ms on."""
    return recording_of(
        tmp_path,
        [
            [(0, 4 * MS, R), (4 * MS, 10 * MS, S)],
            [(0, MS, R), (MS, 4 * MS, W, 0, -1, 1, 0, 1), (4 * MS, 7 * MS, R),
             (7 * MS, 10 * MS, S)],
            [(0, 2 * MS, R), (2 * MS, 7 * MS, W, 0, -1, 1, 1, 1),
             (7 * MS, 8 * MS, G, 0, -1, 1, 1, 1), (8 * MS, 10 * MS, R)],
        ],
        names=["A", "B", "C"],
        samples=[(MS, 0, 4, MS), (5 * MS, 1, 5, MS)],
        meta={"cpus": 2},
    )  # fmt: skip


def test_few_wakeups_are_an_arrow_each(recording: Recording) -> None:
    drawn = timeline(recording).data["arrows"]
    assert (drawn["time"], drawn["waker"], drawn["woken"]) == ([4 * MS, 7 * MS], [0, 1], [1, 2])
    assert [drawn["locks"][lock] for lock in drawn["lock"]] == ["formula_lock"] * 2
    assert (drawn["wakeups"], drawn["drawn"], drawn["count"]) == (2, 2, [1, 1])


def test_many_wakeups_are_the_largest_groups_of_them(tmp_path: Path) -> None:
    recording = made_recording(tmp_path, 6, 4.0)
    drawn = transitions.arrows(recording, Selection())
    table = wakeups(recording)
    assert drawn["wakeups"] == len(table) > 150
    assert len(drawn["time"]) == len(drawn["count"]) == 60
    assert drawn["drawn"] == sum(drawn["count"]) < len(table)
    time = table["time_ns"] - table["time_ns"].min()
    slot = (time * 24 // (time.max() + 1)).tolist()
    groups = Counter(zip(slot, table["waker"], table["woken"], table["lock"], strict=True))
    assert sorted(drawn["count"]) == sorted(n for _, n in groups.most_common(60))


def test_a_wait_shows_who_led_to_its_end_and_the_critical_path(recording: Recording) -> None:
    widget = timeline(recording)
    ask(widget, "chain", row=2, time=3 * MS)
    found = widget.highlight
    assert (found["row"], found["start"], found["end"]) == (2, 2 * MS, 7 * MS)
    lock = "formula_lock"
    assert found["links"] == [[7 * MS, 1, 2, lock], [4 * MS, 0, 1, lock]]
    assert found["critical"] == [[0, 4 * MS, 0], [4 * MS, 7 * MS, 1], [7 * MS, 10 * MS, 2]]
    ask(widget, "chain", row=2, time=7.5 * MS)  # ready: it was woken already
    assert widget.highlight["links"] == found["links"]
    ask(widget, "at", row=2, start=3 * MS, end=3.1 * MS, state=-1)
    assert widget.place["chain"] == [
        "0.007000000 s: B → C through formula_lock",
        "0.004000000 s: A → B through formula_lock",
    ]


def test_the_use_of_the_cores_is_that_of_the_selection(recording: Recording) -> None:
    widget = timeline(recording)
    ask(widget, "zoom", start=0, end=10 * MS, bins=100)
    levels = np.frombuffer(widget.data["used"], np.uint8).reshape(-1, len(widget.data["classes"]))
    shares = np.diff(levels / 255, axis=1, prepend=0).mean(axis=0)
    assert 100 * shares == pytest.approx(use_of_time(recording)["share_percent"], abs=1)


def test_filters_restrict_what_is_below_the_timeline(tmp_path: Path) -> None:
    view = thread_view(made_recording(tmp_path, 5, 1.0))
    view.view = "Locks"
    ask(view.timeline, "filter", locks="^formula")
    assert [row[0] for row in view.locks.data["rows"]] == ["formula_lock"]
    assert view.timeline.data["arrows"]["locks"] == ["formula_lock"]
    ask(view.timeline, "filter", locks="", function="^scatter$")
    view.view = "Bottom-up"
    assert "scatter" in view._trees["Bottom-up"].value
    assert "prepare" not in view._trees["Bottom-up"].value
    ask(view.timeline, "filter", function="")
    assert "prepare" in view._trees["Bottom-up"].value


def test_filters_are_in_the_widgets_state_and_can_be_put_back(recording: Recording) -> None:
    widget = timeline(recording)
    ask(widget, "filter", threads="[BC]", locks="formula", function="loop")
    ask(widget, "zoom", start=MS, end=8 * MS, bins=500)
    kept = json.loads(json.dumps(widget.get_state()["filters"]))
    assert kept == {
        "threads": "[BC]", "locks": "formula", "function": "loop", "start": MS, "end": 8 * MS,
    }  # fmt: skip
    again = timeline(recording)
    again.filters = kept
    assert again.selection == widget.selection == Selection(MS, 8 * MS, (1, 2), (1,), "loop")
    assert again.data["names"] == ["B", "C"]
    again.filters = {"threads": ""}  # the others stay
    assert again.selection == Selection(MS, 8 * MS, None, (1,), "loop")


def test_wrong_filters_are_sentences_and_change_nothing(recording: Recording) -> None:
    widget = timeline(recording)
    before, data = widget.selection, widget.data
    for name in ("threads", "locks", "function"):
        ask(widget, "filter", **{name: "a("})
        assert "no regular expression" in widget.message
        assert widget.selection == before
        assert widget.data is data
    for wrong, words in (
        ({"lock": "x"}, "unknown filter 'lock'"),
        ({"locks": 3}, "must be a text"),
        ({"start": float("nan")}, "no number of ns"),
    ):
        with pytest.raises(UserError, match=words):
            widget.filters = wrong
    widget.filters = {"start": 20 * MS, "end": 30 * MS}
    assert "no time from" in widget.message
    assert widget.filters["start"] == 0
    assert widget.selection == before
