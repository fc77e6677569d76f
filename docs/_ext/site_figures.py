"""Directives for figures of recorded runs, and for what was recorded.

``recorded-figure`` (arguments: experiment, figure; options ``machine``, ``tag``, and ``says``:
subjects of findings) shows one with its lines; ``figures EXPERIMENT`` shows all of one experiment,
``gallery`` the first of each, small, below its question; ``recorded-machines`` lists where they
come from. Whoever names an experiment, a machine or a figure that is not there gets a
sentence, and the build fails.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from drawing import Drawn, draw_all, draw_tagged
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

__all__ = ["all_figures", "chosen", "gallery", "setup"]

_log = logging.getLogger(__name__)
_drawn: list[tuple[Drawn, Path]] = []


def _prepare(app: Sphinx) -> None:
    _log.info("drawing the figures of recorded runs ...")
    _drawn[:] = draw_all(app.config.site_figures.split())


def chosen(runs: list[Drawn], experiment: str, machine: str = "") -> Drawn:
    """The recorded run that a page names; without a machine, the one to show first.

    Raises
    ------
    UserError
        There is no such experiment, or no recorded run of it there.
    """
    from perflib.experiments import NAMES
    from perflib.model.errors import UserError, choose

    if experiment not in NAMES:
        raise UserError(choose("experiment", experiment, NAMES))
    ours = {one.machine: one for one in runs if one.experiment == experiment}
    if not ours:
        msg = f"no run of {experiment} is recorded"
        raise UserError(msg)
    if not machine:
        return max(ours.values(), key=lambda one: len(one.figures))
    if machine not in ours:
        raise UserError(choose(f"recorded run of {experiment}", machine, list(ours)))
    return ours[machine]


class OneFigure(SphinxDirective):
    """One figure of a recorded run with its lines; the content is put before its caption."""

    required_arguments = 2
    option_spec: ClassVar = dict.fromkeys(("machine", "tag", "says"), directives.unchanged)
    has_content = True

    def run(self) -> list[nodes.Node]:
        """The figure, or an error that names what there is."""
        from perflib.model.errors import UserError

        experiment, plot = self.arguments
        try:
            one = chosen([run for run, _ in _drawn], experiment, self.options.get("machine", ""))
            folder = next(folder for run, folder in _drawn if run is one)
            if tag := self.options.get("tag", ""):
                one, folder = draw_tagged(one.machine, experiment, tag)
            figure = one.figure(plot)
            subjects = filter(None, self.options.get("says", "").split(", "))
            says = [f"{one.sentence(subject)}." for subject in subjects]
        except UserError as error:
            raise self.error(str(error)) from error
        about = (
            f"{figure.shows[:1].upper()}{figure.shows[1:]}. Recorded on {one.machine}, {one.day}."
        )
        image = nodes.image(
            uri="/"
            + os.path.relpath(folder / figure.file, self.env.srcdir),  # "/": from the source's root
            alt=f"{figure.shows} ({experiment}, recorded on {one.machine})",
        )
        text, _ = self.parse_inline(" ".join([*self.content, *says, about]))
        shown = nodes.figure("", image, nodes.caption("", "", *text))
        lines = nodes.literal_block(figure.code, figure.code, language="python")
        return [nodes.container("", shown, lines, classes=["recorded-figure"])]


def all_figures(runs: list[Drawn], name: str) -> str:
    """Every figure of an experiment as Markdown, of one recorded run."""
    ours = [one for one in runs if one.experiment == name]
    if not ours:
        return "No run of it is recorded."
    one = chosen(runs, name)
    others = " and ".join(f"`{other.machine}`" for other in ours if other is not one)
    lines = [f"There are recorded runs of {others}, too.", ""] if others else []
    for figure in one.figures:
        lines += [f"```{{recorded-figure}} {name} {figure.name}"]
        lines += [f":machine: {one.machine}", "```", ""]
    lines += [f"- `{plot}` is not drawn: {why}" for plot, why in one.missing.items()]
    return "\n".join(lines)


def gallery(runs: list[tuple[Drawn, Path]], top: Path) -> str:
    """The first figure of each experiment as Markdown, with its question; it leads to all of them.

    ``top``: the folder that paths of pictures begin with.
    """
    from perflib.experiments import NAMES, get

    lines = ["`````{container} gallery"]
    for name in NAMES:
        ours = [one for one, _ in runs if one.experiment == name]
        picture = "No run of it is recorded."
        if ours:
            one = chosen(ours, name)
            folder = next(folder for run, folder in runs if run is one)
            file = "/" + os.path.relpath(folder / one.figures[0].file, top)
            picture = f"![]({file})"
        lines += ["````{container} thumbnail"]
        lines += [f"[{picture} {get(name).question}](reference/{name}.md#figures) `{name}`", "````"]
    return "\n".join([*lines, "`````"])


class Figures(SphinxDirective):
    """Every figure of an experiment, of one recorded run."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The figures with their lines."""
        text = all_figures([one for one, _ in _drawn], self.arguments[0])
        return self.parse_text_to_nodes(text)


class Gallery(SphinxDirective):
    """A figure of every experiment, of one recorded run each."""

    def run(self) -> list[nodes.Node]:
        """A small picture for each experiment."""
        return self.parse_text_to_nodes(gallery(_drawn, Path(self.env.srcdir)))


class Machines(SphinxDirective):
    """The recorded machines, and what was recorded on each."""

    def run(self) -> list[nodes.Node]:
        """A list of them."""
        by_machine: dict[str, list[Drawn]] = {}
        for one, _ in _drawn:
            by_machine.setdefault(one.machine, []).append(one)
        lines = [
            f"- `{machine}`: {ours[0].title}. {', '.join(f'`{one.experiment}`' for one in ours)}."
            for machine, ours in by_machine.items()
        ]
        return self.parse_text_to_nodes("\n".join(lines or ["No run is recorded."]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directives; figures are drawn before any page is read.

    ``-D site_figures="kv_per_core numa"`` draws those of some experiments only.
    """
    app.add_config_value("site_figures", default="", rebuild="env", types=(str,))
    app.connect("builder-inited", _prepare, priority=800)
    app.add_directive("recorded-figure", OneFigure)
    app.add_directive("figures", Figures)
    app.add_directive("gallery", Gallery)
    app.add_directive("recorded-machines", Machines)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
