"""The figures of recorded runs, each with the lines that made it: those lines are executed."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prepare import content_key, folder, in_two_processes

__all__ = [
    "Drawn",
    "RecordedFigure",
    "draw_all",
    "draw_tagged",
    "lines_for",
    "recorded_runs",
    "shows",
]


@dataclass(frozen=True)
class RecordedFigure:
    """One figure: its file, what it shows, and the lines that made it."""

    name: str
    file: str
    shows: str
    code: str


@dataclass(frozen=True)
class Drawn:
    """A recorded run with all its figures, and with why one could not be drawn."""

    machine: str
    title: str
    experiment: str
    tag: str
    day: str
    says: dict[str, str]
    figures: list[RecordedFigure]
    missing: dict[str, str]

    def sentence(self, subject: str) -> str:
        """What the run says of a subject.

        Raises
        ------
        UserError
            It says nothing of it; the nearest subject is given.
        """
        from perflib.model.errors import UserError, choose

        if subject not in self.says:
            raise UserError(choose(f"subject of {self.experiment}", subject, self.says))
        return self.says[subject]

    def figure(self, name: str) -> RecordedFigure:
        """The figure of that name.

        Raises
        ------
        UserError
            There is none; the nearest name is given.
        """
        from perflib.model.errors import UserError, choose

        for one in self.figures:
            if one.name == name:
                return one
        where = f" of {self.experiment} on {self.machine}"
        raise UserError(choose(f"figure{where}", name, [one.name for one in self.figures]))


def recorded_runs() -> Iterator[tuple[str, str]]:
    """Machine and experiment of each recorded run that the gallery may show."""
    from perflib.experiments import NAMES
    from perflib.framework.recordings import machines

    for machine in machines():
        yield from ((machine, name) for name in NAMES if _recording(machine, name, ""))


def _recording(machine: str, name: str, tag: str) -> Any:
    """Of the recorded runs with that tag the one whose parameters are nearest to the defaults."""
    from perflib.experiments import get
    from perflib.framework.recordings import recordings

    ours = [
        one
        for one in recordings(machine)
        if one.experiment == name and one.provenance.get("tag", "") == tag
    ]
    return min(
        ours, key=lambda one: (len(_given(get(name), one.params)), str(one.path)), default=None
    )


def _given(experiment: Any, params: dict[str, Any]) -> dict[str, Any]:
    """What a request for such a run has to name: a preset, or parameters that are no defaults."""
    has = experiment.current_params(params).model_dump(mode="json")
    own = [
        name
        for name in experiment.Params.model_fields
        if name not in _conditions() and not name.endswith("_percent")
    ]

    def differ(preset: str | None) -> dict[str, Any]:
        defaults = experiment.params({}, preset).model_dump(mode="json")
        return {name: has[name] for name in own if has[name] != defaults[name]}

    return min(
        (
            {**({"preset": preset} if preset else {}), **differ(preset)}
            for preset in (None, "quick")
        ),
        key=len,
    )


def _conditions() -> set[str]:
    from perflib.framework.params import Params

    return set(Params.model_fields)


def lines_for(machine: str, experiment: str, given: dict[str, Any], plot: str) -> str:
    """The three lines that make a figure."""
    arguments = [f"{key}={value!r}" for key, value in {**given, "recorded": machine}.items()]
    call = f'run = pl.experiment("{experiment}").run({", ".join(arguments)})'.replace("'", '"')
    if len(call) > 88:
        lines = "".join(f"    {one},\n" for one in arguments).replace("'", '"')
        call = f'run = pl.experiment("{experiment}").run(\n{lines})'
    return f'import perflib as pl\n{call}\nrun.plot("{plot}")'


def draw(machine: str, name: str, tag: str, out: str) -> None:
    """Draw all figures of one recorded run into a folder, with ``drawn.json`` next to them."""
    import perflib as pl
    from perflib.experiments import get
    from perflib.framework.recordings import machines
    from perflib.lab.theme import png
    from perflib.model.errors import PerflibError
    from perflib.store.files import replacing

    experiment = get(name)
    recording = _recording(machine, name, tag)
    given = _given(experiment, recording.params) | ({"tag": tag} if tag else {})
    with contextlib.redirect_stdout(io.StringIO()):
        run = pl.experiment(name).run(**given, recorded=machine)
    target = Path(out)
    target.mkdir(parents=True, exist_ok=True)
    figures, missing = [], {}
    for plot in run.plots:
        code = lines_for(machine, name, given, plot)
        lines: dict[str, Any] = {}
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code.replace("\nrun.plot", "\nfigure = run.plot"), lines)  # noqa: S102 ours
        except PerflibError as error:
            missing[plot] = str(error)
            continue
        file = "-".join(filter(None, (machine, name, tag, plot))).replace(" ", "-") + ".png"
        (target / file).write_bytes(png(lines["figure"]))
        figures.append(RecordedFigure(plot, file, shows(experiment.plots, plot), code))
    day = str(recording.provenance.get("start", ""))[:10]
    drawn = Drawn(
        machine, machines()[machine], name, tag, day, _says(run), figures, missing
    )  # fmt: skip
    with replacing(target / "drawn.json") as new:  # another process may look for it
        new.write_text(json.dumps(asdict(drawn)), encoding="utf-8")


def _says(run: Any) -> dict[str, str]:
    """What its findings say, by subject, without where they are from: captions say that once."""
    return {one.subject: dataclasses.replace(one, recorded="").plain for one in run.findings}


def shows(plots: Mapping[str, str], name: str) -> str:
    """What a plot shows, or nothing; ``time_{routine}`` declares all of such names."""
    for pattern, what in plots.items():
        parts = re.split(r"\{\w+\}", pattern)
        if re.fullmatch(".+".join(map(re.escape, parts)), name):
            return str(what)
    return ""


def draw_all(only: Collection[str] = ()) -> list[tuple[Drawn, Path]]:
    """Every recorded run of the gallery with the folder of its figures.

    What is unchanged is not drawn again. ``only`` names experiments, for those who want few soon.
    """
    return _drawn([(*run, "") for run in recorded_runs() if not only or run[1] in only])


def draw_tagged(machine: str, name: str, tag: str) -> tuple[Drawn, Path]:
    """One recorded run that an exercise made.

    Raises
    ------
    UserError
        There is none.
    """
    from perflib.model.errors import UserError

    if _recording(machine, name, tag) is None:
        msg = f"no run of {name} is recorded on {machine} with the tag {tag!r}"
        raise UserError(msg)
    return _drawn([(machine, name, tag)])[0]


def _drawn(runs: list[tuple[str, str, str]]) -> list[tuple[Drawn, Path]]:
    folders = [
        folder() / "figures" / content_key(Path(__file__).read_bytes(), *run) for run in runs
    ]
    wanted = [
        (*run, str(target))
        for run, target in zip(runs, folders, strict=True)
        if not (target / "drawn.json").is_file()
    ]
    if wanted:
        in_two_processes(draw, wanted)
    return [(_read(target), target) for target in folders]


def _read(target: Path) -> Drawn:
    stored = json.loads((target / "drawn.json").read_text(encoding="utf-8"))
    figures = [RecordedFigure(**one) for one in stored.pop("figures")]
    return Drawn(**stored, figures=figures)
