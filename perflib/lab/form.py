"""The form: an experiment's parameters as fields, run, live plot, stop, save.

All of a measurement's calls stay in one background thread: worker processes die with the thread
that started them. Figures are drawn in that thread too, between trials, so that drawing takes no
core from a sample; at most a tenth of the time goes into them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import ipywidgets as widgets

from perflib import experiments
from perflib.framework import configured, recordings
from perflib.framework.params import Params
from perflib.lab.fields import Fields
from perflib.lab.markup import escape, image
from perflib.lab.repeated import call, command, differing, foretold, last_took
from perflib.lab.summary import summary
from perflib.lab.tables import STYLE, verdicts
from perflib.lab.theme import figures, png
from perflib.measure.progress import half_width, left
from perflib.measure.schedule import Status
from perflib.model.errors import PerflibError, UserError
from perflib.model.finding import Finding
from perflib.model.run import UNFINISHED, Run, recording_of
from perflib.store import run_files

_REDRAW_S = 1.0
_DRAWING_SHARE = 0.1
_NO_PRESET = "(defaults)"
_HERE = "this machine"
_FIXED = "0 0 auto"  # flex: neither grows nor shrinks
_STYLE = (
    STYLE
    + """
.perflib-form .widget-html-content, .perflib-form .widget-html-content * { line-height: 1.25; }
.perflib-form .perflib-help { font-size: 0.9em; opacity: 0.8; }
.perflib-form img { max-width: 100%; }
.perflib-form .perflib-changed .widget-label { font-weight: 700; }
"""
)


class Form(widgets.VBox):
    """The form of one experiment. ``run`` is the finished run, ``findings`` what it says."""

    run: Run | None
    findings: list[Finding]

    def __init__(self, name: str, bound: Callable[[Run], Run] = lambda run: run) -> None:
        self.run = None
        self._bound = bound  # to its experiment
        self.findings = []
        self.experiment = experiments.get(name)
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._next_draw = 0.0
        documented = configured.documentation(self.experiment)
        self._presets = documented["presets"]
        self.preset = widgets.Dropdown(
            options=[_NO_PRESET, *self._presets],
            description="preset",
            tooltip="fill the fields with a preset's values",
        )
        self.source = widgets.Dropdown(
            options=[_HERE, *_recorded_machines(name)],
            description="data from",
            tooltip="this machine is measured; a recorded one was, with the parameters listed by "
            "pl.recorded()",
        )
        self._message = widgets.HTML()
        self.fields = Fields(documented["parameters"], set(Params.model_fields), self._check)
        self.run_button = _button("Run", "primary", "play", self._start)
        self.stop_button = _button("Stop", "warning", "stop", self._stop_now)
        self.save_button = _button("Save as", "", "download", self._save_as)
        self.file = widgets.Text(
            description="file",
            placeholder="samples.csv or samples.parquet",
            tooltip="a copy of the samples; the run itself is stored anyway",
        )
        self._choose = widgets.Dropdown(description="figure", options=[])
        self._bar = widgets.FloatProgress(
            min=0, max=1, layout=widgets.Layout(width="20em", flex=_FIXED)
        )
        self._foretold = widgets.HTML()
        self._took = last_took(name)
        self._status = widgets.HTML("not started")
        self.call = _copied("in a cell", "the call that makes the same run")
        self.command = _copied("command", "the command that makes the same run")
        self._plot = widgets.HTML()
        self._shown = b""
        self._result = widgets.HTML()
        self._pngs: dict[str, bytes] = {}
        self.preset.observe(self._load_preset, "value")
        self.source.observe(lambda _: self._check(), "value")
        self._choose.observe(self._show_chosen, "value")
        self._again = widgets.VBox([self.call, self.command])
        for hidden in (self._plot, self._choose, self._bar, self._again):
            hidden.layout.display = "none"
        if self.source.options == (_HERE,):
            self.source.layout.display = "none"
        super().__init__(
            [
                widgets.HTML(
                    f"<style>{_STYLE}</style><h3>{escape(documented['title'])}</h3>"
                    f"<p>{escape(documented['question'])}</p>{_notices(name)}"
                ),
                widgets.HBox([self.preset, self.source]),
                self.fields.box,
                self._message,
                self._foretold,
                widgets.HBox([self.run_button, self.stop_button, self._bar, self._status]),
                self._choose,
                self._plot,
                self._result,
                self._again,
                widgets.HBox([self.save_button, self.file]),
            ]
        )
        self.add_class("perflib-form")
        self.add_class(f"perflib-form-{name}")
        self._status.add_class("perflib-status")
        self._foretold.add_class("perflib-foretold")
        self._message.add_class("perflib-message")
        self.stop_button.disabled = self.save_button.disabled = True
        if "quick" in self._presets:
            self.preset.value = "quick"
        else:
            self._check()

    # --- what the user does ----------------------------------------------------------------------

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the measurement that continues has ended."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _params(self) -> Params | None:
        """The fields validated; ``None`` where they are wrong, and the form says why."""
        try:
            params = configured.params(self.experiment, self.fields.given())
            if self.source.value == _HERE:
                params.resolved_cores()
        except UserError as error:
            self._say(str(error), wrong=True)
            return None
        self._say("")
        return params

    def _check(self) -> None:
        params = self._params()
        self.run_button.disabled = params is None or self._running()
        text = ""
        if params is not None:
            here = self.source.value == _HERE
            text = foretold(params, self._took) if here else "Nothing is measured: it is recorded."
        self._foretold.value = escape(text)

    def _load_preset(self, _: object) -> None:
        self.fields.fill(self._presets.get(self.preset.value, {}))

    def _running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self, _: object = None) -> None:
        params = self._params()
        if params is None or self._running():
            return
        self._stop.clear()
        self._allow(running=True)
        self._status.value = "starting…"
        self._result.value = ""
        self._bar.value = 0.0
        self._bar.layout.display = None
        self._next_draw = 0.0
        self._thread = threading.Thread(target=self._measure, args=(params,), daemon=True)
        self._thread.start()

    def _stop_now(self, _: object = None) -> None:
        if self._running():
            self._stop.set()
            self._status.value = "stopping after this trial…"

    def _save_as(self, _: object = None) -> None:
        try:
            self._say(f"saved to {self._export(Path(self.file.value.strip()).expanduser())}")
        except (PerflibError, OSError) as error:
            self._say(str(error), wrong=True)

    def _export(self, path: Path) -> Path:
        assert self.run is not None
        if path.suffix not in (".csv", ".parquet"):
            msg = "name a file that ends in .csv or .parquet"
            raise UserError(msg)
        if path.exists():
            msg = f"{path} exists already: choose another name"
            raise UserError(msg)
        if path.suffix == ".csv":
            run_files.write_csv(self.run.samples, path)
        else:
            run_files.save(self.run, path)
        return path.absolute()

    # --- in the background thread ----------------------------------------------------------------

    def _measure(self, params: Params) -> None:
        try:
            measured = self._taken(params)
            self.findings = self.experiment.analyse(measured)
            self.run = self._bound(measured)
            self._draw(measured)
            self._finish(measured)
            self._repeat(params)
        except PerflibError as error:
            self._say(str(error), wrong=True)
            self._status.value = "failed"
        except Exception as error:  # noqa: BLE001 - a thread's traceback would be seen by nobody
            self._say(f"unexpected: {type(error).__name__}: {error}", wrong=True)
            self._status.value = "failed"
        finally:
            self._allow(running=False)

    def _taken(self, params: Params) -> Run:
        """Measured here, or recorded."""
        if self.source.value != _HERE:
            return recordings.recorded(self.experiment, self.source.value, params)
        return self.experiment.measure(params, self._progress(params), self._stop)

    def _progress(self, params: Params) -> Callable[[Status], None]:
        def progress(status: Status) -> None:
            whole_s = status.elapsed_s + status.left_s
            self._bar.value = max(self._bar.value, status.elapsed_s / max(1e-9, whole_s))
            if not self._stop.is_set():
                width = half_width(status, " points")
                self._status.value = f"round {status.rounds + 1}{width}{left(status.left_s)}"
            begin = monotonic()
            if status.rounds < self.experiment.live_rounds or begin < self._next_draw:
                return
            partial = Run(
                UNFINISHED,
                self.experiment.name,
                params.model_dump(mode="json"),
                status.samples(),
            )
            self._draw(partial)
            took_s = monotonic() - begin
            self._next_draw = begin + max(_REDRAW_S, took_s / _DRAWING_SHARE)

        return progress

    def _draw(self, measured: Run) -> None:
        """Draw what there is; a figure that fails must not end a measurement."""
        try:
            self._pngs = {name: png(figure) for name, figure in figures(measured).items()}
        except Exception as error:  # noqa: BLE001
            self._say(f"no figure yet: {error}")
            return
        if tuple(self._choose.options) != tuple(self._pngs):
            self._choose.options = list(self._pngs)
            self._choose.value = next(iter(self._pngs))
        self._choose.layout.display = None if len(self._pngs) > 1 else "none"
        self._show_chosen()

    def _show_chosen(self, _: object = None) -> None:
        if self._choose.value in self._pngs:
            self._shown = self._pngs[self._choose.value]
            alt = f"{self._choose.value} of {self.experiment.name}"
            self._plot.value = image(self._shown, alt)
            self._plot.layout.display = None

    def _finish(self, measured: Run) -> None:
        stopped = measured.provenance["stopped"]
        kept = f"{stopped}: {len(measured.samples)} samples kept as run {measured.id}"
        note = recording_of(measured)
        self._status.value = escape(f"nothing was measured: recorded on {note}" if note else kept)
        self._bar.value = 1.0
        items = "".join(f"<li>{escape(text)}</li>" for text in summary(self.findings))
        problems = "".join(
            f"<p>On the way: {escape(text)}</p>" for text in measured.provenance["problems"]
        )
        self._result.value = f"<ul>{items}</ul>{verdicts(self.findings).html()}{problems}"

    def _repeat(self, params: Params) -> None:
        """Show how the same run is made without the form."""
        preset = None if self.preset.value == _NO_PRESET else self.preset.value
        recorded = "" if self.source.value == _HERE else self.source.value
        given = differing(self.experiment, params, preset)
        self.call.value = call(self.experiment.name, given, preset, recorded)
        self.command.value = command(self.experiment.name, given, preset, recorded)
        self._again.layout.display = None
        self._took = last_took(self.experiment.name)

    # --- what is shown ---------------------------------------------------------------------------

    def _allow(self, *, running: bool) -> None:
        self.run_button.disabled = running
        self.stop_button.disabled = not running
        self.save_button.disabled = running or self.run is None
        self.preset.disabled = self.source.disabled = running
        self.fields.enable(enabled=not running)

    def _say(self, text: str, *, wrong: bool = False) -> None:
        style = "color:#b3261e;font-weight:600" if wrong else "color:inherit"
        body = escape(text).replace("\n", "<br>")
        self._message.value = f'<span style="{style}">{body}</span>' if text else ""

    @property
    def message(self) -> str:
        """What the form says to its user now, as HTML."""
        return str(self._message.value)

    @property
    def status(self) -> str:
        """Where the measurement stands, in words."""
        return str(self._status.value)


def _button(label: str, style: str, icon: str, pressed: Callable[[object], None]) -> widgets.Button:
    button = widgets.Button(
        description=label,
        button_style=style,
        icon=icon,
        layout=widgets.Layout(width="8em", flex=_FIXED),
    )
    button.on_click(pressed)
    return button


def _copied(label: str, says: str) -> widgets.Text:
    """A line that is there to be copied."""
    wide = widgets.Layout(width="100%", max_width="60em")
    return widgets.Text(description=label, tooltip=f"{says}, to be copied", layout=wide)


def _recorded_machines(name: str) -> list[str]:
    """The recorded machines that have a run of this experiment."""
    return [
        machine
        for machine in recordings.machines()
        if any(one.experiment == name for one in recordings.recordings(machine))
    ]


def _notices(name: str) -> str:
    """Runs of this experiment that wait to be finished."""
    unfinished = [
        saved.id
        for saved in run_files.runs()
        if saved.status == "interrupted" and saved.experiment == name
    ]
    if not unfinished:
        return ""
    return (
        f"<p>Unfinished: {escape(', '.join(unfinished))}. 'perflib run --resume ID' continues "
        "with a run whose process was killed.</p>"
    )
