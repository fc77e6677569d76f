from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from perflib.instruments.threads.formats import Lock, Selection, State
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.waits import lock_holders, lock_waits, longest_waits, wait_paths
from perflib.lab.threads import views as thread_views
from perflib.lab.threads.page import duration
from perflib.lab.threads.views import By, ThreadView, thread_view
from perflib.model.errors import MeasurementError
from tests.instruments.threads.made import made_recording, recording_of

MS = 1_000_000


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return made_recording(tmp_path, 5, 1.0, cpus=2)


@pytest.fixture
def view(recording: Recording) -> ThreadView:
    return thread_view(recording)


def part_of(recording: Recording) -> tuple[int, int]:
    """Some milliseconds in the middle."""
    return recording.start_ns + 400 * MS, recording.start_ns + 500 * MS


def texts(view: ThreadView) -> str:
    """All HTML that the view has now."""
    parts = [view._paths, view._calls, *view._trees.values(), view._selected, view._problem]
    return "".join(str(part.value) for part in parts)


def test_only_what_is_open_is_computed(
    view: ThreadView, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lock_waits", "cpu_samples", "wait_samples", "serial_parts"):

        def fail(*_: Any, name: str = name, **__: Any) -> None:
            raise MeasurementError(name)

        monkeypatch.setattr(thread_views, name, fail)
    view.timeline.zoom(*part_of(recording))
    assert view._problem.value == ""
    view.view = "Locks"
    assert view._problem.value == "<p>lock_waits</p>"
    view.view = "Threads"
    assert view._problem.value == ""


def test_a_click_on_a_thread_restricts_every_view(view: ThreadView, recording: Recording) -> None:
    names = [row[0] for row in view.threads.data["rows"]]
    view.threads.chosen = [names.index("event-2")]
    assert view.timeline.selection.rows == (3,)
    assert [row[0] for row in view.threads.data["rows"]] == names  # the others can still be chosen
    assert view.threads.chosen == [names.index("event-2")]
    assert "1 thread:" in texts(view)
    view.view = "Locks"
    waited = lock_waits(recording, Selection(rows=[3]))
    assert [row[2] for row in view.locks.data["rows"]] == [f"{n:,}" for n in waited["waits"]]
    view.threads.chosen = []
    assert view.timeline.selection.rows is None


def test_many_threads_are_listed_in_part(tmp_path: Path) -> None:
    threads = [[(0, 10 + row, State.WAITING, 0, -1, 0)] for row in range(70)]
    view = thread_view(recording_of(tmp_path, threads))
    assert len(view.threads.data["rows"]) == 25
    assert view.threads.data["rows"][0][0] == "event-69"
    assert "the 25 threads with the most waiting of 70" in view.threads.data["caption"]
    view.timeline.choose([3])  # is not listed
    view.threads.chosen = [0]
    assert view.timeline.selection.rows == (3, 69)


def test_locks_and_their_paths(view: ThreadView, recording: Recording) -> None:
    view.view = "Locks"
    view.timeline.zoom(*part_of(recording))
    waited = lock_waits(recording, Selection(*part_of(recording)))
    assert [row[0] for row in view.locks.data["rows"]] == list(waited["name"])
    assert view.locks.data["rows"][0][5] == duration(1e9 * waited["total_s"][0])
    assert "every lock" in view._paths.value
    assert "construct ← formula ← event_loop ← main" in view._paths.value
    place = list(waited["name"]).index("output_module")
    view.locks.chosen = [place]
    assert "From where output_module was waited for" in view._paths.value
    assert "lock_wait ← output ← event_loop ← main" in view._paths.value
    assert "construct" not in view._paths.value
    (path,) = wait_paths(recording, 0, Selection(*part_of(recording))).to_dict("records")
    assert duration(1e9 * path["total_s"]) in view._paths.value
    holder = lock_holders(recording, 0, Selection(*part_of(recording))).iloc[0]
    assert f"<td>{holder['thread']}</td>" in view._paths.value
    view.locks.chosen = []
    assert "construct" in view._paths.value


def test_a_click_on_a_long_wait_shows_it(view: ThreadView, recording: Recording) -> None:
    view.view = "Longest waits"
    longest = longest_waits(recording, n=25)
    assert [row[1] for row in view.waits.data["rows"]] == [
        duration(1e6 * ms) for ms in longest["total_ms"]
    ]
    view.waits.chosen = [2]
    place, wait = view.timeline.place, longest.iloc[2]
    assert place["row"] == wait["row"]
    assert place["start"] == wait["start_ns"] - recording.start_ns
    assert dict(place["facts"])["lock"] == wait["name"]


def test_concurrency_is_a_picture_of_the_selection(view: ThreadView, recording: Recording) -> None:
    view.view = "Concurrency"
    whole = bytes(view._at_once.value)
    assert whole.startswith(b"\x89PNG")
    view.timeline.zoom(*part_of(recording))
    part = bytes(view._at_once.value)
    assert part.startswith(b"\x89PNG")
    assert part != whole


def test_a_selection_without_anything(view: ThreadView, recording: Recording) -> None:
    """The first tenth of the job is its first thread's."""
    view.timeline.selection = Selection(recording.start_ns, recording.start_ns + 90 * MS, (2,))
    for by in get_args(By):
        view.by = by
        for title in view._parts:
            view.view = title
        what = {
            "CPU time": "no samples of CPU time",
            "waiting time": "no waits for locks",
            "off-CPU time": "no times without a core",
        }[by]
        assert texts(view).count(what) == 3
        assert what in view._flame.children[0].value
    assert "Nothing was waited for here" in view._paths.value
    assert "Nothing was waited for here" in view.waits.data["caption"]


@pytest.mark.parametrize(
    "threads", [[], [[]], [[(0, 9 * MS, State.UNKNOWN, 1)]]], ids=["none", "empty", "lost"]
)
def test_next_to_nothing_was_recorded(tmp_path: Path, threads: Any) -> None:
    meta = {
        "lost": {"events": 1234, "samples": 5},
        "cut": "the disk was full",
        "remarks": ["A remark & more."],
        "others_busy_ns": 20 * MS,
    }
    view = thread_view(recording_of(tmp_path, threads, meta=meta))
    for title in view._parts:
        view.view = title
        assert view._problem.value == ""
    about = view.children[0].value
    assert "Lost: 1,234 events and 5 samples" in about
    assert "It ends early: the disk was full." in about
    assert "While its threads were ready, other programs ran for 20.0 ms." in about
    assert "A remark &amp; more." in about


def test_odd_names_are_texts_everywhere(tmp_path: Path) -> None:
    lock = Lock("<i>lock</i>\n", "mutex", 0, 1)
    recording = recording_of(
        tmp_path,
        [
            [(0, MS, State.WAITING, 0, -1, 0, 1, 0), (MS, 2 * MS, State.RUNNING)],
            [(0, 2 * MS, State.RUNNING)],
        ],
        names=["<b>x</b>", "\udcff\x1b"],
        locks=(lock,),
        stacks=("main;<script>f</script>;operator<",),
        samples=[(MS, 1, 0, 5)],
    )
    view = thread_view(recording)
    for by in get_args(By):
        view.by = by
        for title in view._parts:
            view.view = title
        shown = texts(view)
        assert "<script>f" not in shown
        assert "&lt;script&gt;f" in shown
        assert "<b>x" not in shown
        assert "<i>" not in shown
        shown.encode()
    assert view.locks.data["rows"][0][0] == r"<i>lock</i>\n"
    assert r"\x1b" in view._paths.value
