"""The figures of matrices of cores, through what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


def test_one_core_is_no_matrix_but_is_drawn() -> None:
    cells = cells_of(samples(flat(1)))
    for draw in (drawn, grouped, classed):
        assert png(draw(cells))
