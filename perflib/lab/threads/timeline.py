"""Threads over time in the notebook: what each did, zoomable, however many and however long.

A row is a thread. A column of pixels is a bin of time: its colours are the shares of the states in
it, stacked. The page requests every view, and the kernel answers with bins, never with intervals,
so that a view's size does not depend on the recording's. Without a kernel the last view stands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from perflib.instruments.threads.concurrency import concurrency_over_time
from perflib.instruments.threads.formats import ALL, STATES, Selection, State
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.samples import cpu_samples
from perflib.lab.threads import page, transitions
from perflib.model.errors import PerflibError, UserError, choose

__all__ = ["FILTERS", "SCRIPT", "Selection", "Timeline", "timeline"]

FILTERS = ("threads", "locks", "function")
"""What can be filtered by a regular expression."""

SCRIPT = "\n".join(
    Path(__file__).with_name(name).read_text(encoding="utf-8")
    for name in ("painting.js", "transitions.js", "timeline.js")
)
"""What draws the view, in the notebook and in a page that stands alone: one module."""

_BINS = 1000
_MAX_BINS = 2000
_MAX_ROWS = 64
_MAX_FRAMES = 200  # of a stack that is shown
_DEEPEST = 200  # steps back that are kept


class Timeline(anywidget.AnyWidget):
    """The widget that ``timeline`` makes.

    ``selection`` is the span of time that is drawn, and the threads that were chosen, by a click
    on their names or by the filter. It may be set, and it may be observed; it changes after
    the view is drawn. ``filters`` is what restricts it, in the widget's state, so that a saved
    notebook has it: regular expressions for the names of ``threads`` and ``locks`` and for a
    ``function`` of stacks, and the ``start`` and ``end`` in ns since the recording began. What is
    set replaces the entry of that name. ``place`` describes the interval that was clicked,
    ``highlight`` the wake-ups that led to a wait's end, ``message`` what is wrong with what the
    user requested.
    """

    _esm = SCRIPT
    _css = Path(__file__).with_suffix(".css")
    data = traitlets.Dict().tag(sync=True)
    filters = traitlets.Dict().tag(sync=True)
    place = traitlets.Dict().tag(sync=True)
    highlight = traitlets.Dict().tag(sync=True)
    message = traitlets.Unicode().tag(sync=True)
    answered = traitlets.Int().tag(sync=True)  # the page waits for it before its next request
    selection = traitlets.Instance(Selection)

    def __init__(self, recording: Recording, rows_per_page: int = 32) -> None:
        if not 1 <= rows_per_page <= _MAX_ROWS:
            msg = f"rows_per_page={rows_per_page}: from 1 to {_MAX_ROWS}"
            raise UserError(msg)
        self.recording = recording
        self._per_page = rows_per_page
        self._names = [page.shown(name) for name in recording.threads["name"]]
        self._bins = _BINS
        self._order = page.ORDERS[0]
        self._texts = dict.fromkeys(FILTERS, "")
        self._ordered = self._found = page.ordered(recording, self._order)
        self._chosen: tuple[int, ...] = ()
        self._page = 0
        self._before: list[tuple[int, int]] = []
        whole = page.window(recording, ALL)
        self._first_ns, last_ns = recording.span(whole)
        self._whole_ns = last_ns - self._first_ns
        self._critical: tuple[tuple[int, int], tuple[list[list[int]], str]] | None = None
        super().__init__(selection=whole)
        self._draw()
        self.on_msg(self._on_message)

    # --- what a program may do -------------------------------------------------------------------

    def zoom(self, start_ns: int | None = None, end_ns: int | None = None) -> None:
        """Draw a span of time; ``None`` is the recording's start or end."""
        self._select(page.window(self.recording, Selection(start_ns, end_ns)))

    @property
    def chosen(self) -> tuple[int, ...]:
        """The rows of the threads that were chosen one by one."""
        return self._chosen

    @property
    def found(self) -> tuple[int, ...] | None:
        """The rows that the filter finds; None for all."""
        return tuple(sorted(self._found)) if self._texts["threads"] else None

    def choose(self, rows: Sequence[int]) -> None:
        """Restrict the selection to some threads; to all that the filter finds if there are none.

        Raises
        ------
        UserError
            There is no such row.
        """
        for row in rows:
            self._check_row(row)
        self._chosen = tuple(dict.fromkeys(rows))
        self._select(self.selection)

    def filter(
        self,
        threads: str | None = None,
        locks: str | None = None,
        function: str | None = None,
    ) -> None:
        """Restrict the view by regular expressions; empty: no longer, None: as before.

        Parameters
        ----------
        threads
            Found in the names of the threads that are shown.
        locks
            Found in the names of the locks whose waits and wake-ups count.
        function
            Found in one of the functions of the stacks that count: of CPU time, and of waits.

        Raises
        ------
        UserError
            One is no regular expression, or takes too long; nothing has changed.
        """
        given = zip(FILTERS, (threads, locks, function), strict=True)
        texts = self._texts | {what: text for what, text in given if text is not None}
        if texts == self._texts:
            return
        found = page.found(self.recording, texts["threads"], self._ordered)
        page.restricted(self.recording, Selection(), texts["locks"], texts["function"])
        if texts["threads"] != self._texts["threads"]:
            self._found, self._page, self._chosen = found, 0, ()
        self._texts = texts
        self._select(self.selection)

    def order(self, order: str) -> None:
        """Order the threads by ``"start"``, ``"name"``, ``"waiting"`` or ``"CPU time"``."""
        self._ordered = page.ordered(self.recording, order)
        self._order = order
        self._found = page.found(self.recording, self._texts["threads"], self._ordered)
        self._page = 0
        self._draw()

    def show_chain(self, row: int, time_ns: int) -> None:
        """Highlight who woke a thread after a time, who woke that one, and the critical path.

        Raises
        ------
        UserError
            There is no such row.
        """
        row = self._check_row(row)
        found = self.recording.at(row, time_ns)
        if not found or found["state"] not in page.BLOCKED:
            self.highlight = {}
            return
        span = self.recording.span(self.selection)
        if self._critical is None or self._critical[0] != span:
            self._critical = span, transitions.critical(self.recording, Selection(*span))
        critical, words = self._critical[1]
        end_ns = page.wait_end(self.recording, row, time_ns)
        links = transitions.links(self.recording, row, end_ns)
        self.highlight = {
            "row": row,
            "start": found["start_ns"] - self._first_ns,
            "end": end_ns - self._first_ns,
            # The thread's last wake-up may be an earlier one: nobody is known to have ended this.
            "links": links if links and links[0][0] == end_ns - self._first_ns else [],
            "critical": critical,
            "words": words,
        }

    def show_place(self, row: int, time_ns: int) -> None:
        """Show what a thread did at a time, and where; of a wait also what led to its end.

        Raises
        ------
        UserError
            There is no such row.
        """
        row = self._check_row(row)
        self.show_chain(row, time_ns)
        found = self.recording.at(row, time_ns)
        place: dict[str, Any] = {"row": row, "name": self._names[row]}
        if not found:
            self.place = place | {"state": "", "facts": [], "stack": []}
            return
        start, end = found["start_ns"], found["end_ns"]
        notes = {
            "lost": "events were lost within it: it may have been several",
            "sampled": "its ends are those of samples, not stamped",
        }
        locked = bool(found["lock"])
        facts = {
            "from": f"{(start - self._first_ns) / 1e9:.9f} s",
            "to": f"{(end - self._first_ns) / 1e9:.9f} s",
            "for": page.duration(end - start),
            "core": f"CPU {found['cpu']}" if found["cpu"] >= 0 else "",
            "lock": page.shown(found["lock"]) if locked else "",
            "held by" if locked else "woken by": found["holder"] and page.shown(found["holder"]),
            "note": "; ".join(words for what, words in notes.items() if found[what]),
        }
        where, stack = "where it waits", found["stack"]
        if not stack:
            where, stack = self._sampled(row, start, end)
        frames = [page.shown(frame) for frame in stack.split(";") if frame]
        self.place = place | {
            "state": page.LABELS[State(STATES.index(found["state"]))],
            "start": start - self._first_ns,
            "end": end - self._first_ns,
            "facts": [[what, words] for what, words in facts.items() if words],
            "where": where,
            "stack": frames[::-1][:_MAX_FRAMES],
            "chain": [self._link(*link) for link in self.highlight.get("links", ())],
        }

    def _link(self, time: int, waker: int, woken: int, lock: str) -> str:
        by, through = self._names[waker] if waker >= 0 else "?", lock and f" through {lock}"
        return f"{time / 1e9:.9f} s: {by} → {self._names[woken]}{through}"

    # --- requests of the page ---------------------------------------------------------------------

    def _on_message(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        """Answer the page, and count the answer: it waits for that before its next request."""
        try:
            self.message = ""
            self._answer(content)
        except PerflibError as error:
            self.message = str(error)
        finally:
            self.answered += 1

    def _answer(self, content: dict[str, Any]) -> None:
        # The page's times count from the recording's start: JavaScript's numbers cannot hold those
        # of a clock that has run for months.
        match content["ask"]:
            case "zoom":
                self._bins = min(_MAX_BINS, max(100, round(content["bins"])))
                start, end = (self._first_ns + round(content[name]) for name in ("start", "end"))
                self.zoom(start, end)
            case "back":
                if self._before:
                    self.zoom(*self._before[-1])
            case "page":
                self._page = min(max(0, round(content["page"])), self._pages() - 1)
                self._draw()
            case "order":
                self.order(content["order"])
            case "filter":
                self.filter(**{what: str(content[what]) for what in FILTERS if what in content})
            case "chain":
                self.show_chain(content["row"], self._first_ns + round(content["time"]))
            case "choose":
                row = self._check_row(content["row"])
                others = [other for other in self._chosen if other != row]
                self.choose(others if row in self._chosen else [*others, row])
            case "at":
                self._show_column(content)

    # --- drawing ---------------------------------------------------------------------------------

    @traitlets.validate("selection")
    def _valid(self, proposal: Any) -> Selection:
        wanted = page.window(self.recording, proposal.value)
        rows = wanted.rows
        rows = self.found if rows is None else tuple(self._check_row(row) for row in rows)
        return page.restricted(
            self.recording,
            replace(wanted, rows=rows),
            self._texts["locks"],
            self._texts["function"],
        )

    @traitlets.validate("filters")
    def _valid_filters(self, proposal: Any) -> dict[str, Any]:
        for name, value in proposal.value.items():
            if name not in (*FILTERS, "start", "end"):
                raise UserError(choose("filter", str(name), (*FILTERS, "start", "end")))
            if name in FILTERS and not isinstance(value, str):
                msg = f"the filter {name}={value!r} is no regular expression: it must be a text"
                raise UserError(msg)
            if name not in FILTERS and (
                not isinstance(value, int | float) or not math.isfinite(value)
            ):
                msg = f"the filter {name}={value!r} is no number of ns since the recording began"
                raise UserError(msg)
        return {**self.filters, **proposal.value}

    @traitlets.observe("filters")
    def _apply(self, change: Any) -> None:
        """Do as the filters say that a program, a page or a restored state has set."""
        if change.new == self._filters():
            return
        try:
            self.message = ""
            self.filter(**{what: change.new.get(what, "") for what in FILTERS})
            start, end = (
                None if value is None else self._first_ns + round(value)
                for value in (change.new.get("start"), change.new.get("end"))
            )
            self.zoom(start, end)
        except PerflibError as error:
            self.message = str(error)
        finally:
            self.filters = self._filters()

    def _filters(self) -> dict[str, Any]:
        start, end = (time - self._first_ns for time in self.recording.span(self.selection))
        return {**self._texts, "start": start, "end": end}

    @traitlets.observe("selection")
    def _follow(self, change: Any) -> None:
        """Draw what was selected, before whoever else observes it hears of it."""
        if not isinstance(change.old, Selection):  # the first one
            return
        rows = None if self.selection.rows is None else tuple(self.selection.rows)
        self._chosen = () if rows is None or rows == self.found else rows
        now, before = (self.recording.span(one) for one in (change.new, change.old))
        if self._before and self._before[-1] == now:
            self._before = self._before[:-1]
        elif now != before:
            self._before = [*self._before[1 - _DEEPEST :], before]
        self._draw()

    def _select(self, span: Selection) -> None:
        wanted = page.restricted(
            self.recording,
            replace(span, rows=self._chosen or self.found),
            self._texts["locks"],
            self._texts["function"],
        )
        if wanted == self.selection:
            self._draw()
        else:
            self.selection = wanted

    def _pages(self) -> int:
        return max(1, -(-len(self._found) // self._per_page))

    def _check_row(self, row: int) -> int:
        if not 0 <= row < len(self._names):
            msg = f"there is no row {row}: the recording has {len(self._names)} threads"
            raise UserError(msg)
        return int(row)

    def _draw(self) -> None:
        start, end = self.recording.span(self.selection)
        bins = max(1, min(self._bins, end - start))
        drawn = self._found[self._page * self._per_page :][: self._per_page]
        work = concurrency_over_time(self.recording, bins, self.selection)
        title, ticks = page.time_axis(start - self._first_ns, end - self._first_ns)
        threads = self.recording.threads
        self.data = {
            **page.legend(self.recording),
            "start": start - self._first_ns,
            "end": end - self._first_ns,
            "whole": self._whole_ns,
            "cpus": int(self.recording.meta["cpus"]),
            "bins": bins,
            "rows": drawn,
            "names": [self._names[row] for row in drawn],
            "tids": [int(threads["tid"].iloc[row]) for row in drawn],
            "chosen": [int(row in self._chosen) for row in drawn],
            "chosen_in_all": len(self._chosen),
            "levels": page.levels(self.recording, bins, Selection(start, end, drawn)).tobytes(),
            "working": work["concurrency"].to_numpy("<f4").tobytes(),
            "ready": work["ready"].to_numpy("<f4").tobytes(),
            "axis": title,
            "ticks": ticks,
            "page": self._page,
            "pages": self._pages(),
            "per_page": self._per_page,
            "found": len(self._found),
            "threads": len(self._names),
            "filtered": bool(self._texts["threads"]),
            "order": self._order,
            "back": bool(self._before),
            "used": page.used(self.recording, bins, self.selection).tobytes(),
            "arrows": transitions.arrows(self.recording, replace(self.selection, rows=drawn)),
            "critical_of": "critical path of what is shown",
        }
        self.highlight = {}
        self.filters = self._filters()

    def _show_column(self, content: dict[str, Any]) -> None:
        """Show the longest interval of what is a column of pixels: there may be thousands."""
        start, end = (self._first_ns + round(content[name]) for name in ("start", "end"))
        row, drawn = self._check_row(content["row"]), round(content["state"])
        state = page.DRAWN[drawn] if 0 <= drawn < len(page.DRAWN) else None
        time_ns, many = page.longest_within(self.recording, row, (start, end), state)
        self.show_place(row, time_ns)
        if many > 1:
            which = "" if state is None else " of its state"
            note = [
                "column",
                f"the longest of {many:,}{which} that it has here: zoom in for others",
            ]
            self.place = self.place | {"facts": [*self.place["facts"], note]}

    def _sampled(self, row: int, start: int, end: int) -> tuple[str, str]:
        """The stack with most of the CPU time of the samples within an interval."""
        samples = cpu_samples(self.recording, Selection(start, end, [row]))
        if samples.empty:
            return "where it is was not recorded", ""
        by_stack = samples.groupby("stack", observed=True)["period"].sum()
        share = by_stack.max() / max(1, by_stack.sum())
        return f"where {100 * share:.0f} % of its samples are", str(by_stack.idxmax())


def timeline(recording: Recording, *, rows_per_page: int = 32) -> Timeline:
    """The threads of a recording over time, for the notebook.

    Drag over a span of time to zoom into it, click on a place to see what the thread did there and
    from where, click on a thread's name to choose it. The keys are listed below the graph.

    Parameters
    ----------
    recording
        What was recorded.
    rows_per_page
        How many threads are drawn at once, up to 64; the graph pages through the others.

    Raises
    ------
    UserError
        So many rows cannot be drawn.

    Examples
    --------
    ``timeline(Recording.open(folder))``
    """
    return Timeline(recording, rows_per_page)
