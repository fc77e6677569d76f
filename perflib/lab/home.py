"""The start page: this machine, what spoils measurements now, saved runs, experiments by symptom.

It consists of widgets alone, so it works in JupyterLab, Notebook 7 and voila. What takes seconds,
to look at the machine, is done in a background thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from perflib import experiments
from perflib.investigation.evidence import Evidence, Question
from perflib.investigation.fit import examine, spoilers
from perflib.kernels.compiling import compiler
from perflib.lab.form import Form
from perflib.lab.interface import RunView, bound, compare, load, report
from perflib.lab.machine import facts
from perflib.lab.markup import escape, image
from perflib.lab.portrait import drawn
from perflib.lab.portrait_facts import facts_of
from perflib.lab.summary import summary
from perflib.lab.symptoms import Symptom, symptoms
from perflib.lab.tables import STYLE, table, verdicts
from perflib.lab.theme import png
from perflib.model.errors import PerflibError, UserError
from perflib.model.finding import Finding
from perflib.store import run_files

_MOST_RUNS = 200  # a longer list is searched, not read
_SHOWN_FACTS = ("microarchitecture", "CPUs allowed", "hypervisor", "container", "hardware counters")
_FREE = widgets.Layout(width="auto", flex="0 0 auto", align_self="flex-start")
_TEXT = widgets.Layout(width="30em", max_width="100%")
_STYLE = (
    STYLE
    + """
.perflib-home .widget-html-content, .perflib-home .widget-html-content * { line-height: 1.3; }
.perflib-home h2 { margin: 0.8em 0 0.2em; }
.perflib-home img { max-width: 100%; }
.perflib-home a { color: var(--jp-content-link-color, #0b5c70); text-decoration: underline; }
.perflib-home .perflib-symptom { border-top: 1px solid rgba(128, 128, 128, 0.3); }
"""
)


class Home(widgets.VBox):
    """The start page. ``machine``, ``runs`` and ``symptoms`` are its parts."""

    def __init__(self) -> None:
        self.machine, self.runs, self.symptoms = MachinePart(), RunsPart(), SymptomsPart()
        super().__init__(
            [widgets.HTML(f"<style>{_STYLE}</style>"), self.machine, self.runs, self.symptoms]
        )
        self.add_class("perflib-home")

    def __repr__(self) -> str:
        return "pl.home(): the start page"


class MachinePart(widgets.VBox):
    """What this machine is, and what spoils measurements on it now."""

    def __init__(self) -> None:
        self.facts, self.spoilers = widgets.HTML(), widgets.HTML()
        self.again = _button("Look again", "what spoils measurements changes", self.look)
        heading = "<h2>What spoils measurements now</h2>"
        super().__init__(
            [
                widgets.HTML("<h2>This machine</h2>"),
                self.facts,
                widgets.HTML(heading),
                self.spoilers,
                self.again,
            ]
        )
        self._thread: threading.Thread | None = None
        self.look()

    def look(self, _: object = None) -> None:
        """Look at the machine, in the background."""
        if self._thread is None or not self._thread.is_alive():
            self.again.disabled = True
            self.spoilers.value = _said("Looking at this machine, for some seconds…")
            self._thread = threading.Thread(target=self._look, daemon=True)
            self._thread.start()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until it has been looked at."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _look(self) -> None:
        with _answered(self.spoilers):
            fit = examine()
            self.facts.value = _portrait(fit)
            self.spoilers.value = _spoiled(fit)
        self.again.disabled = False


class RunsPart(widgets.VBox):
    """The saved runs: search, open one, compare two, write a report."""

    def __init__(self) -> None:
        self.search = widgets.Text(
            description="search",
            placeholder="experiment, machine, date",
            tooltip="search: words that a run's line must have",
            layout=_TEXT,
        )
        self.chosen = widgets.SelectMultiple(
            description="runs",
            tooltip="runs: choose one to open, two to compare, any number for a report",
            rows=8,
            layout=widgets.Layout(width="60em", max_width="100%"),
        )
        self.open_button = _button("Open", "what the run says, its figures", self._open)
        self.compare_button = _button("Compare two", "the later with the earlier", self._compare)
        self.report_button = _button("Report", "write an HTML file about the runs", self._report)
        self.refresh_button = _button("Refresh", "look for runs that are new", self.refresh)
        self.file = widgets.Text("report.html", description="report to", layout=_TEXT)
        self.message = widgets.HTML()
        self.figure = widgets.Dropdown(description="figure", options=[])
        self.picture, self.result = widgets.HTML(), widgets.HTML()
        self._run: RunView | None = None
        self.search.observe(self.refresh, "value")
        self.figure.observe(self._draw, "value")
        self._actions = widgets.HBox(
            [self.open_button, self.compare_button, self.report_button, self.file],
            layout=widgets.Layout(flex_flow="row wrap"),
        )
        super().__init__(
            [
                widgets.HTML("<h2>Saved runs</h2>"),
                widgets.HBox([self.search, self.refresh_button]),
                self.chosen,
                self._actions,
                self.message,
                self.result,
                self.figure,
                self.picture,
            ]
        )
        self._clear()
        self.refresh()

    def refresh(self, _: object = None) -> None:
        """List the runs that the search finds, the newest first."""
        every = run_files.runs()[::-1]
        words = self.search.value.lower().split()
        found = [run for run in every if all(word in _line(run).lower() for word in words)]
        self.chosen.options = [(_line(run), run.id) for run in found[:_MOST_RUNS]]
        self.chosen.layout.display = self._actions.layout.display = None if found else "none"
        if not every:
            self.message.value = _said(
                f"No run is saved yet, in {run_files.runs_dir()}. Open a form below and press Run."
            )
        elif not found:
            self.message.value = _said(f"None of {len(every)} runs has all of these words.")
        else:
            more = f"The newest {_MOST_RUNS} of {len(found)}: search for others."
            self.message.value = _said(more if len(found) > _MOST_RUNS else "")

    def _clear(self) -> None:
        self._run = None
        self.figure.layout.display = "none"
        self.figure.options, self.picture.value, self.result.value = [], "", ""

    def _wanted(self, least: int, most: int, what: str) -> list[RunView]:
        """The chosen runs, the earlier first."""
        chosen = [name for _, name in self.chosen.options if name in self.chosen.value][::-1]
        if not least <= len(chosen) <= most:
            msg = f"{what}: {len(chosen)} are chosen (Ctrl or Shift with a click or a key adds one)"
            raise UserError(msg)
        return [load(name) for name in chosen]

    def _open(self, _: object = None) -> None:
        self._clear()
        with _answered(self.message):
            (run,) = self._wanted(1, 1, "Choose one run to open")
            title = f"{experiments.get(run.experiment).title}: {run.id}"
            self.result.value = _judged(title, run.findings)
            self._run = run
            if run.plots:
                self.figure.options, self.figure.layout.display = run.plots, None
                self.figure.value = run.plots[0]

    def _draw(self, _: object = None) -> None:
        if self._run is not None and self.figure.value:
            with _answered(self.message):
                alt = f"{self.figure.value} of {self._run.id}"
                self.picture.value = image(png(self._run.plot(self.figure.value)), alt)

    def _compare(self, _: object = None) -> None:
        self._clear()
        with _answered(self.message):
            first, second = self._wanted(2, 2, "Choose two runs to compare")
            title = f"{second.id} compared with {first.id}"
            self.result.value = _judged(title, compare(first, second))

    def _report(self, _: object = None) -> None:
        with _answered(self.message):
            runs = self._wanted(1, _MOST_RUNS, "Choose the runs of the report")
            path = Path(self.file.value.strip() or "report.html").expanduser()
            if path.exists():
                msg = f"{path} exists already: choose another name"
                raise UserError(msg)
            self.message.value = _said(f"Written to {report(runs, path)}")


class SymptomsPart(widgets.VBox):
    """The experiments by what one sees, each with its form and its notebook."""

    form: Form | None = None

    def __init__(self) -> None:
        self.search = widgets.Text(
            description="search",
            placeholder="slow core, iTLB, lock",
            tooltip="search: words of a symptom, a cause or an experiment",
            layout=_TEXT,
        )
        self.message = widgets.HTML()
        self.buttons: dict[str, widgets.Button] = {}  # of each experiment the last
        self.rows = [(one, self._row(one)) for one in symptoms()]
        self.place = widgets.VBox()
        self.search.observe(self._filter, "value")
        super().__init__(
            [
                widgets.HTML(
                    "<h2>What do you see?</h2><p>A button opens an experiment's form below; "
                    "a notebook explains it.</p>"
                ),
                self.search,
                widgets.VBox([row for _, row in self.rows]),
                self.message,
                self.place,
            ]
        )

    def _row(self, one: Symptom) -> widgets.VBox:
        for name in one.experiments:
            self.buttons[name] = _button(name, experiments.get(name).question, self._opens(name))
        how = [] if one.notebooks else [escape(one.how)]
        links = "; ".join([*map(_link, one.notebooks), *how])
        offered = [*(self.buttons[name] for name in one.experiments), widgets.HTML(links)]
        says = f"<b>{escape(one.see)}</b>: {escape(one.may_be)}"
        row = widgets.VBox(
            [
                widgets.HTML(says),
                widgets.HBox(
                    offered, layout=widgets.Layout(flex_flow="row wrap", align_items="center")
                ),
            ]
        )
        row.add_class("perflib-symptom")
        return row

    def _filter(self, _: object = None) -> None:
        query = " ".join(self.search.value.lower().split())
        meant = [one for one, _ in self.rows if query in map(str.lower, one.words)]
        shown = 0
        for one, row in self.rows:
            named = (*one.experiments, *one.notebooks, *one.words)
            text = " ".join([one.see, one.may_be, *named]).lower()
            fits = one in meant if meant else all(word in text for word in query.split())
            row.layout.display = None if fits else "none"
            shown += fits
        nothing = "No symptom has all of these words; perflib investigate needs none."
        self.message.value = _said("" if shown else nothing)

    def _opens(self, name: str) -> Callable[[object], None]:
        return lambda _: self.show_form(name)

    def show_form(self, name: str) -> None:
        """Show an experiment's form below; one that measures stays."""
        if self.form is not None and not self.form.stop_button.disabled:
            running = self.form.experiment.name
            self.message.value = _said(f"The form of {running} measures: stop it first.")
            return
        with _answered(self.message):
            self.form = Form(name, bound)
            self.place.children = (self.form,)


@contextmanager
def _answered(message: widgets.HTML) -> Iterator[None]:
    """Whatever goes wrong within becomes a sentence of a widget: a callback's traceback is lost."""
    before = message.value = _said("Working…")
    try:
        yield
    except Exception as error:  # noqa: BLE001
        text = str(error) if isinstance(error, PerflibError | OSError) else repr(error)
        message.value = _said(text)
    else:
        if message.value == before:
            message.value = ""


def _button(label: str, says: str, pressed: Callable[[object], None]) -> widgets.Button:
    button = widgets.Button(description=label, tooltip=says, layout=_FREE)
    button.on_click(pressed)
    return button


def _said(text: str) -> str:
    """A sentence that a screen reader says when it comes."""
    return f'<p role="status">{escape(text)}</p>' if text else ""


def _judged(title: str, findings: Sequence[Finding]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in summary(findings))
    return f"<h3>{escape(title)}</h3><ul>{items}</ul>{verdicts(findings).html()}"


def _portrait(fit: Mapping[str, Any]) -> str:
    """The machine as a figure, and what that does not show: also what is hidden from here."""
    known = {name: value for name, value in facts(fit["machine"]) if name in _SHOWN_FACTS}
    hidden = [one["name"] for one in fit["checks"] if one["state"] == "unknown"]
    known["cannot be seen from here"] = ", ".join(hidden) or "nothing that perflib looks for"
    words = table({"what": name, "here": value} for name, value in known.items()).html()
    portrait = facts_of(Evidence(Question(), [], dict(fit)))
    cores = png(drawn(replace(portrait, levels=())))  # claimed sizes are in the boxes
    return image(cores, portrait.in_words()) + words


def _spoiled(fit: Mapping[str, Any]) -> str:
    """What spoils measurements, and what prevents them."""
    found = []
    if not os.environ.get("PERFLIB_KERNELS"):
        try:
            compiler()
        except UserError as error:
            found.append(escape(str(error)))
    for one in spoilers(fit):
        command = f" <code>{escape(one.command)}</code>" if one.command else ""
        found.append(f"<b>{escape(one.name)}</b>: {escape(one.now)}.{command}")
    if not found:
        return _said("Nothing that perflib looks for.")
    items = "".join(f"<li>{one}</li>" for one in found)
    return f"<ul>{items}</ul><p><code>perflib doctor</code> says more, and what each costs.</p>"


def _line(run: run_files.Saved) -> str:
    """A run in the list."""
    state = "" if run.status == "saved" else f"{run.status}: "
    words = (run.start[:16].replace("T", " "), run.experiment, run.machine, run.id)
    return state + "  ".join(filter(None, words))


def _link(notebook: str) -> str:
    """A notebook next to the one that shows this; elsewhere its name."""
    file = f"{notebook}.ipynb"
    if not Path(file).is_file():
        return f"notebook {escape(file)}"
    return f'<a href="{escape(file)}" target="_blank">notebook {escape(notebook)}</a>'


def home() -> Home:
    """The start page: this machine, what spoils measurements now, saved runs, experiments."""
    return Home()
