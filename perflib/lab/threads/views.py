"""All views of a recording of threads in one box; what is below the timeline follows it.

Only the view that is open is computed, so that a long recording costs no more than what is seen.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import ipywidgets as widgets
import pandas as pd

from perflib.instruments.profile import views
from perflib.instruments.profile.views import Node
from perflib.instruments.threads.concurrency import (
    Serial,
    concurrency_over_time,
    serial_parts,
    thread_states,
)
from perflib.instruments.threads.formats import Selection
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.samples import cpu_samples, off_cpu_samples, wait_samples
from perflib.instruments.threads.waits import lock_holders, lock_waits, longest_waits, wait_paths
from perflib.lab.choice import Choice
from perflib.lab.flamegraph import flame_graph
from perflib.lab.markup import escape
from perflib.lab.tables import STYLE
from perflib.lab.theme import png
from perflib.lab.threads import listing
from perflib.lab.threads.figures import concurrency_figure
from perflib.lab.threads.listing import Column
from perflib.lab.threads.page import DRAWN, LABELS, about, duration, number, shown
from perflib.lab.threads.timeline import timeline
from perflib.model.errors import PerflibError

By = Literal["CPU time", "waiting time", "off-CPU time"]
"""What trees and the flame graph add up; off-CPU: waiting for locks, sleeping and ready."""

_ASKED = {"CPU time": cpu_samples, "waiting time": wait_samples, "off-CPU time": off_cpu_samples}
_NONE = {
    "CPU time": "no samples of CPU time",
    "waiting time": "no waits for locks",
    "off-CPU time": "no times without a core",
}

_MAX_ROWS = 25  # of a table
_MAX_NODES = 300  # of a tree
_MIN_PERCENT = 0.5  # of a tree's node
_INDENT = "\N{EM SPACE}"
_NO_WAITS = "Nothing was waited for here."
_STYLE = (
    STYLE
    + """
.perflib-threads .widget-html-content, .perflib-threads .widget-html-content * { line-height: 1.3; }
.perflib-threads table.perflib-table td.path { white-space: pre-wrap; overflow-wrap: anywhere;
  font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 0.92em; }
"""
)
_SECONDS, _MILLISECONDS = 1e9, 1e6
_STATES = [listing.time(LABELS[state], state.name.lower(), _SECONDS) for state in DRAWN]
_THREADS = [listing.name("thread", "name"), Column("id", lambda one: str(one["tid"])), *_STATES]
_LOCKS = [
    listing.name("lock", "name"),
    listing.name("kind", "kind"),
    listing.count("waits", "waits"),
    listing.time("waiting", "waiting_s", _SECONDS),
    listing.time("then ready", "ready_s", _SECONDS),
    listing.time("together", "total_s", _SECONDS),
    listing.time("longest", "longest_ms", _MILLISECONDS),
    listing.count("threads", "threads"),
    listing.name("on its line", "on_its_line"),
]
_OF_A_LOCK = [
    listing.percent("share", "percent"),
    listing.time("time", "total_s", _SECONDS),
    listing.count("waits", "waits"),
    listing.name("lock", "name"),
]
_WAITS = [
    Column("from (s)", lambda one: f"{one['from_s']:.6f}"),
    listing.time("time", "total_ms", _MILLISECONDS),
    listing.name("thread", "thread"),
    listing.name("lock", "name"),
    listing.name("held by", "holder"),
    listing.path("innermost calls", "stack", 3),
]


class ThreadView(widgets.VBox):
    """What ``thread_view`` makes: ``timeline``, and below it the views of its selection.

    ``view`` is the title of the view that is open, and may be set; ``by`` what the trees add up.
    """

    def __init__(self, recording: Recording, rows_per_page: int = 32) -> None:
        self.recording = recording
        self.timeline = timeline(recording, rows_per_page=rows_per_page)
        self._selected = widgets.HTML()
        self._selected.add_class("perflib-selected")
        self.weight = widgets.ToggleButtons(
            options=list(_ASKED),
            description="trees by",
            style={"button_width": "9em"},
        )
        self.function = widgets.Dropdown(
            description="function", layout=widgets.Layout(width="40em", max_width="100%")
        )
        self.threads = Choice(many=True)
        self.locks = Choice()
        self.waits = Choice()
        self._paths = widgets.HTML()
        self._at_once = widgets.Image(
            format="png", layout=widgets.Layout(max_width="100%", display="none")
        )
        self._trees = {name: widgets.HTML() for name in ("Bottom-up", "Top-down")}
        self._calls = widgets.HTML()
        self._flame = widgets.VBox()
        self._lock_numbers: list[int] = []
        self._longest = pd.DataFrame()
        self._thread_rows: list[int] = []
        self._sampled: tuple[tuple[Selection, By], pd.DataFrame] | None = None
        self._serial: Serial | None = None
        self._filling = False
        parts: list[_Part] = [
            _Part("Threads", self.threads, self._draw_threads),
            _Part("Concurrency", self._at_once, self._draw_concurrency),
            _Part("Locks", widgets.VBox([self.locks, self._paths]), self._draw_locks),
            _Part("Longest waits", self.waits, self._draw_waits),
            *(
                _Part(title, self._trees[title], functools.partial(self._draw_tree, title, tree))
                for title, tree in (("Bottom-up", views.bottom_up), ("Top-down", views.top_down))
            ),
            _Part("Calls", widgets.VBox([self.function, self._calls]), self._draw_calls),
            _Part("Flame graph", self._flame, self._draw_flame),
        ]
        self._parts = {part.title: part for part in parts}
        self._stale = set(self._parts)
        self._problem = widgets.HTML()
        self.tabs = widgets.Tab(
            [part.widget for part in parts], titles=[part.title for part in parts]
        )
        super().__init__(
            [
                widgets.HTML(
                    f"<style>{_STYLE}</style>"
                    + "".join(f"<p>{escape(text)}</p>" for text in about(recording))
                ),
                self.timeline,
                self._selected,
                self.weight,
                self._problem,
                self.tabs,
            ]
        )
        self.add_class("perflib-threads")
        self.timeline.observe(self._follow, "selection")
        self.tabs.observe(lambda _change: self._draw(), "selected_index")
        self.weight.observe(self._reweigh, "value")
        self.function.observe(self._draw_neighbours, "value")
        self.threads.observe(self._choose_threads, "chosen")
        self.locks.observe(lambda _change: self._draw_paths(), "chosen")
        self.waits.observe(self._show_wait, "chosen")
        self._follow()

    # --- what a program may do -------------------------------------------------------------------

    @property
    def view(self) -> str:
        """The title of the view that is open."""
        return list(self._parts)[self.tabs.selected_index or 0]

    @view.setter
    def view(self, title: str) -> None:
        self.tabs.selected_index = list(self._parts).index(title)

    @property
    def by(self) -> By:
        """What trees add up: ``"CPU time"``, ``"waiting time"`` or ``"off-CPU time"``."""
        chosen: By = self.weight.value
        return chosen

    @by.setter
    def by(self, by: By) -> None:
        self.weight.value = by

    # --- following -------------------------------------------------------------------------------

    @property
    def _selection(self) -> Selection:
        return self.timeline.selection

    def _follow(self, _change: object = None) -> None:
        start, end = self.recording.span(self._selection)
        first = self.recording.start_ns
        who = len(self.recording.rows(self._selection.rows))
        states = concurrency_over_time(self.recording, 1, self._selection).iloc[0]
        cpus = int(self.recording.meta["cpus"])
        self._selected.value = (
            f"<b>Selection:</b> {(start - first) / 1e9:.6f} s to {(end - first) / 1e9:.6f} s "
            f"({duration(end - start)}), {number(who, 'thread')}: on average "
            f"{states['concurrency']:.2f} at work on {number(cpus, 'core')}, "
            f"{states['waiting']:.2f} waiting for a lock, {states['ready']:.2f} ready (run-queue "
            "delay)."
        )
        self._stale = set(self._parts)
        self._draw()

    def _reweigh(self, _change: object) -> None:
        self._stale |= {"Bottom-up", "Top-down", "Calls", "Flame graph"}
        self._draw()

    def _draw(self) -> None:
        part = self._parts[self.view]
        problem = ""
        if part.title in self._stale:
            self._filling = True
            try:
                part.draw()
                self._stale.discard(part.title)
            except PerflibError as error:
                problem = f"<p>{escape(str(error))}</p>"
            finally:
                self._filling = False
        self._problem.value = problem

    # --- the views -------------------------------------------------------------------------------

    def _draw_threads(self) -> None:
        states = thread_states(self.recording, replace(self._selection, rows=self.timeline.found))
        states = states.sort_values(["waiting", "running"], ascending=False, kind="stable")
        listed = states.head(_MAX_ROWS)
        self._thread_rows = [int(row) for row in listed.index]
        chosen = [i for i, row in enumerate(self._thread_rows) if row in self.timeline.chosen]
        caption = f"Time in each state, {_many(states, 'threads')}."
        _show(self.threads, f"{caption} A click on a thread restricts every view to it.",
              listed, _THREADS, chosen)  # fmt: skip

    def _choose_threads(self, change: Any) -> None:
        if self._filling:
            return
        listed = set(self._thread_rows)
        others = [row for row in self.timeline.chosen if row not in listed]
        self.timeline.choose([*others, *(self._thread_rows[place] for place in change.new)])

    def _draw_concurrency(self) -> None:
        if self._serial is None:
            self._serial = serial_parts(self.recording)
        figure = concurrency_figure(self.recording, self._selection, serial=self._serial)
        self._at_once.value = png(figure)
        self._at_once.layout.display = None

    def _draw_locks(self) -> None:
        found = lock_waits(self.recording, self._selection)
        listed = found.head(_MAX_ROWS)
        self._lock_numbers = [int(lock) for lock in listed["lock"]]
        caption = f"Waits for locks, {_many(found, 'locks')}."
        _show(self.locks, f"{caption} A click on a lock restricts what is below to it.",
              listed, _LOCKS)  # fmt: skip
        self._draw_paths()

    def _draw_paths(self) -> None:
        place = next(iter(self.locks.chosen), None)
        lock = None if place is None else self._lock_numbers[place]
        name = "every lock" if lock is None else shown(self.recording.locks[lock].name)
        found = wait_paths(self.recording, lock, self._selection)
        where = f"<p><b>From where {escape(name)} was waited for</b>, {_many(found, 'paths')}"
        parts = [
            f"{where}, innermost call first:</p>",
            _of_a_lock(found, listing.path("path", "stack")),
        ]
        found = lock_holders(self.recording, lock, self._selection)
        parts += [
            f"<p><b>Who held it</b>, {_many(found, 'holders')}:</p>",
            _of_a_lock(found, listing.name("thread", "thread")),
        ]
        self._paths.value = "".join(parts) if len(found) else f"<p>{_NO_WAITS}</p>"

    def _draw_waits(self) -> None:
        self._longest = found = longest_waits(self.recording, _MAX_ROWS, self._selection)
        caption = f"The {len(found)} longest waits for locks. A click shows the wait above."
        from_s = (found["start_ns"] - self.recording.start_ns) / 1e9
        _show(self.waits, caption if len(found) else _NO_WAITS, found.assign(from_s=from_s), _WAITS)

    def _show_wait(self, change: Any) -> None:
        for place in change.new:
            wait = self._longest.iloc[place]
            self.timeline.show_place(int(wait["row"]), int(wait["start_ns"]))

    def _samples(self) -> pd.DataFrame:
        """Those of the selection, kept for the next view of it."""
        wanted = (self._selection, self.by)
        if self._sampled is None or self._sampled[0] != wanted:
            self._sampled = (wanted, _ASKED[self.by](self.recording, self._selection))
        return self._sampled[1]

    def _draw_tree(self, title: str, tree: Callable[..., Node]) -> None:
        samples = self._samples()
        self._trees[title].value = (
            _tree(tree(samples, "period"), self.by) if len(samples) else self._nothing()
        )

    def _nothing(self) -> str:
        return f"<p>There are {_NONE[self.by]} in this selection.</p>"

    def _draw_calls(self) -> None:
        samples = self._samples()
        flat = views.flat(samples, "period").head(500)
        names = list(flat["function"])
        was = self.function.value
        self.function.options = [(shown(name), name) for name in names]
        self.function.value = was if was in names else next(iter(names), None)
        self._draw_neighbours()

    def _draw_neighbours(self, change: Any = None) -> None:
        if change is not None and self._filling:
            return
        samples = self._samples()
        if self.function.value is None or samples.empty:
            self._calls.value = self._nothing()
            return
        made = []
        for title, table, column in (
            ("Called by", views.callers(samples, self.function.value, "period"), "caller"),
            ("Calls", views.callees(samples, self.function.value, "period"), "callee"),
        ):
            columns = [
                listing.percent("share", "percent"),
                listing.time("time", "period"),
                listing.name("function", column)._replace(kind="path"),
            ]
            made.append(
                f"<p><b>{title}</b>, shares of the function's {self.by}</p>"
                + listing.html(table.head(_MAX_ROWS), columns)
            )
        self._calls.value = "".join(made)

    def _draw_flame(self) -> None:
        old = self._flame.children
        samples = self._samples()
        if samples.empty:
            self._flame.children = [widgets.HTML(self._nothing())]
        else:
            graph = flame_graph(samples, weight="period")
            graph.data = graph.data | {
                "weight": f"ns of {self.by}",
                "names": [shown(name) for name in graph.data["names"]],
            }
            self._flame.children = [graph]
        for widget in old:
            widget.close()


class _Part(NamedTuple):
    title: str
    widget: widgets.Widget
    draw: Callable[[], None]


def thread_view(recording: Recording, *, rows_per_page: int = 32) -> ThreadView:
    """All views of a recording: the timeline, and below it those of what is selected in it.

    Threads by state, how many work at once, locks with the paths that wait for them and who held
    them, the longest waits, call trees by CPU time, by waiting time or by off-CPU time.

    Raises
    ------
    UserError
        See `perflib.lab.threads.timeline.timeline`.

    Examples
    --------
    ``thread_view(Recording.open(folder))``
    """
    return ThreadView(recording, rows_per_page)


def _many(table: pd.DataFrame, what: str) -> str:
    if len(table) <= _MAX_ROWS:
        return "the most waiting first"
    return f"the {_MAX_ROWS} {what} with the most waiting of {len(table):,}"


def _show(
    choice: Choice,
    caption: str,
    table: pd.DataFrame,
    columns: list[Column],
    chosen: Sequence[int] = (),
) -> None:
    prose = [place for place, column in enumerate(columns) if column.kind != "number"]
    titles = [column.title for column in columns]
    choice.show(caption, titles, listing.cells(table, columns), prose=prose, chosen=chosen)


def _of_a_lock(table: pd.DataFrame, last: Column) -> str:
    table = table.assign(percent=100 * table["total_s"] / (table["total_s"].sum() or math.inf))
    return listing.html(table.head(_MAX_ROWS), [*_OF_A_LOCK, last])


def _tree(root: Node, by: By) -> str:
    """A call tree as a table: total, own, function by depth."""
    nodes = root.frame(_MIN_PERCENT).head(_MAX_NODES)
    left_out = sum(1 for _ in root.walk()) - len(nodes)
    note = f"{left_out:,} further nodes, most of less than {_MIN_PERCENT:g} %, are left out."
    columns = [
        listing.percent(by, "total_percent"),
        listing.time("", "total"),
        listing.percent("self", "self_percent"),
        Column("function", lambda one: _INDENT * one["depth"] + shown(one["function"]), "path"),
    ]
    return listing.html(nodes, columns) + (f"<p>{note}</p>" if left_out else "")
