"""The figures of matrices of cores, through what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from perflib.experiments.core_pairs.cells import Cells
from perflib.experiments.core_pairs.figures import by_class, heatmap, in_groups
from perflib.experiments.core_pairs.numa.analyse import cells_of
from perflib.experiments.core_pairs.tables import cells_frame, classes_frame
from perflib.lab.theme import png, themed
from tests.experiments.core_pairs.cell_samples import (
    AMD,
    COLUMNS,
    INTEL,
    flat,
    samples,
)

LABELS = ("CPU that has it", "CPU that asks")


def drawn(cells: Cells, order: Sequence[int] = (), **more: Any) -> Figure:
    places = more.pop("at", {})
    with themed():
        return heatmap(cells_frame(cells, order, **places), COLUMNS, "Latency", LABELS, **more)


def grouped(cells: Cells) -> Figure:
    with themed():
        return in_groups(classes_frame(cells, cells.groups()), COLUMNS, "Groups", LABELS)


def classed(cells: Cells) -> Figure:
    with themed():
        return by_class(classes_frame(cells, cells.groups()), COLUMNS, "Classes")


def cells_in(figure: Figure) -> QuadMesh:
    (mesh,) = figure.axes[0].collections
    assert isinstance(mesh, QuadMesh)
    assert mesh.get_rasterized(), "or a large matrix would be a huge SVG"
    return mesh


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for one in figure.legends for text in one.get_texts()]


def test_missing_cells_are_hatched_and_named() -> None:
    cells = cells_of(samples(INTEL, missing=[(2, 3), *((cpu, 9) for cpu in range(16))]))
    figure = drawn(cells)
    assert legend(figure) == ["not measured"]
    assert cells_in(figure).get_array().mask.sum() == 17  # type: ignore[union-attr]
    assert len(words(figure)) == 256 - 17
    assert figure.axes[0].patch.get_hatch()
    assert not drawn(cells_of(samples(INTEL))).axes[0].patch.get_hatch()


def test_one_cell_that_is_far_off_does_not_take_the_colours() -> None:
    table = samples(AMD, rounds=1)
    table.loc[(table["alloc_cpu"] == 3) & (table["load_cpu"] == 4), "latency_cycles"] = 50_000.0
    _, high = cells_in(drawn(cells_of(table))).get_clim()
    assert high is not None
    assert high < 1000


def test_lines_where_places_end_and_the_names_of_what_they_part() -> None:
    node = {cpu: 1 - cpu // 8 for cpu in range(16)}
    cache = {cpu: cpu // 4 for cpu in range(16)}
    figure = drawn(
        cells_of(samples(INTEL)),
        range(15, -1, -1),
        at={"node": node, "cache": cache, "same": node, "unknown": {3: 1}},
        places={name: name for name in ("node", "cache", "same", "unknown")},
        regions=True,
    )
    across = [line.get_ydata()[0] for line in figure.axes[0].lines[::2]]  # type: ignore[index]
    assert across == [8, 4, 8, 12]
    assert words(figure)[-2:] == ["node 0", "node 1"]
    assert legend(figure) == ["node", "cache"]
    assert figure.axes[0].get_xticklabels()[0].get_text() == "15"


@pytest.mark.parametrize(("cycles", "rows"), [(INTEL, 3), (flat(2), 2), (AMD, 6)])
def test_cells_by_their_class(cycles: Any, rows: int) -> None:
    axes = classed(cells_of(samples(cycles))).axes[0]
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert len(names) == rows
    assert names[0] == "a core and itself"
    assert names[1].startswith("class 1: ")
    assert "cycles" in axes.get_xlabel()
    assert len(axes.collections) >= rows - 1  # a band for each class


def test_one_core_is_no_matrix_but_is_drawn() -> None:
    cells = cells_of(samples(flat(1)))
    for draw in (drawn, grouped, classed):
        assert png(draw(cells))
