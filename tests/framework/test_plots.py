from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np

from perflib.experiments.threads import figures
from perflib.framework import plots
from perflib.framework.plots import core_style, core_styles
from perflib.instruments.threads import use
from perflib.instruments.threads.formats import STATES
from perflib.lab import portrait
from perflib.lab.theme import hex_colours
from perflib.lab.threads import page
from perflib.measure.pages.kinds import BACKINGS


def test_cores_of_one_machine_look_unlike() -> None:
    looks = [core_style(cpu) for cpu in range(64)]
    assert len(set(looks)) == 64
    assert core_style(3) == core_style(np.int64(3))  # type: ignore[arg-type]
    styles = core_styles([8, 1])
    assert styles["palette"] == {8: core_style(8)[0], 1: core_style(1)[0]}
    assert styles["markers"] == {8: core_style(8)[1], 1: core_style(1)[1]}


# --- one colour for one thing --------------------------------------------------------------------

_COLOUR = re.compile(r"C\d|#[0-9a-fA-F]{6}|0?\.\d+|tab:\w+")


def _coloured(path: Path) -> set[str]:
    """What a module's own tables give a colour: names before colours, in a dict or a tuple."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
        for key, value in pairs:
            if isinstance(value, ast.Constant) and _COLOUR.fullmatch(str(value.value)):
                name = getattr(key, "value", None) if isinstance(key, ast.Constant) else None
                found.add(str(name or getattr(key, "attr", "")).lower())
    return found


def test_no_other_table_has_a_colour_for_what_has_one() -> None:
    """States of threads, classes of use, parts of a core's time and kinds of pages."""
    package = Path(plots.__file__).parents[1]
    words = {word for name in plots.COLOURS for word in (name, name.replace(" ", "_"))}
    for path in package.rglob("*.py"):
        if path != Path(plots.__file__):
            assert not _coloured(path) & words, path
    for path in [*package.rglob("*.js"), *package.rglob("*.css")]:
        text = path.read_text(encoding="utf-8")
        for name, colour in hex_colours().items():
            if colour != hex_colours()["running"]:  # the focus ring of every widget is as blue
                assert colour not in text, (path, name)


def test_every_view_takes_the_one_table() -> None:
    assert {state.name.lower(): colour for state, colour in page.colours().items()} == {
        name: hex_colours()[name] for name in STATES
    }
    assert {*STATES, *use.CLASSES, *BACKINGS} <= plots.COLOURS.keys()
    assert {part.of for part in portrait._PARTS.values()} <= plots.COLOURS.keys()
    assert set(figures._STATES.values()) == set(STATES)
