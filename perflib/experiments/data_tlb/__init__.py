"""The data TLBs: how many pages can loads go round in before translating addresses costs time?

Dependent loads through one line in each of N pages, and loads through as many lines on a 64th of
the pages. Lines and caches are the same, so what differs is translation.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, model_validator

from perflib.experiments.data_tlb.claims import FIRST, SECOND, WAYS
from perflib.framework.brackets import CHASE_COLUMNS
from perflib.framework.experiment import Experiment
from perflib.framework.page_claims import HUGE_PAGES
from perflib.framework.params import (
    AnyItems,
    Cores,
    Params,
    Words,
    budget,
    limit,
    parameter,
    precision,
)
from perflib.framework.schema import Column, key, ok
from perflib.framework.steps import Drawing, Steps

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LINES", "DataTlb", "DataTlbParams", "experiment"]

Strides = AnyItems[Annotated[int, Field(ge=2, le=512)]]

LINES = ("spread", "packed")


class DataTlbParams(Params):
    """How many pages, of which kinds, and what counts as a TLB's knee."""

    cores: Cores = parameter(
        "first",
        "which CPUs to load from: 'first' (that this process may use), 'all', 'physical' (one CPU "
        "of each core), 'groups' (one of each NUMA node and last-level cache), or a list such as "
        "0-3,8",
    )
    budget_s: float = budget(40.0)
    precision_percent: float = precision(
        1.0,
        "the half-width of what a load through many pages costs, as usual among the sizes, in "
        "percent of a load from the first-level cache, is below this",
    )
    backings: Words = parameter(
        ["4k", "huge"],
        "the pages that the lines are on: 4k, thp, collapse, hugetlb, or 'huge', the first "
        "available of thp and collapse; the run says which are not, and goes on",
    )
    largest_pages: int | None = parameter(
        None,
        "the most pages of 4 KiB (none: three times the entries that are known of the second "
        "level, else 6144; but no more lines than half of the second-level cache holds, and no "
        "more than a quarter of the free memory)",
        ge=64,
        le=1 << 17,
    )
    largest_huge_pages: int = parameter(
        128, "the most pages of 2 MiB, no more than a quarter of the free memory", ge=32, le=8192
    )
    strides: Strides = parameter(
        [4, 16, 32, 64],
        "the ways are looked for with pages of 4 KiB so far apart: powers of two, ascending; "
        "'none' leaves that out",
        "pages",
    )
    sizes_per_doubling: int = parameter(
        6, "how many numbers of pages there are from one to twice as many", ge=2, le=16
    )
    trial_ms: float = parameter(
        0.3,
        "how long one repeat is timed: a slice between two probes that show whether the core was "
        "alone",
        "ms",
        gt=0,
        le=1000,
    )
    repeats: int = parameter(4, "how often lines are timed, once placed and warm", ge=1, le=25)
    knee_percent: float = limit(
        20.0, "a knee so near to the entries that CPUID reports counts as the TLB's", le=100
    )
    visible_percent: float = limit(
        5.0,
        "there is said to be no knee only where many pages cost less than this at every size, in "
        "percent of a load from the first-level cache",
        le=100,
    )

    @model_validator(mode="after")
    def _strides_are_powers_of_two(self) -> DataTlbParams:
        for before, stride in itertools.pairwise([1, *self.strides]):
            if stride & (stride - 1):
                nearest = 1 << round(math.log2(stride))
                msg = f"strides: {stride} is no power of two; the nearest is {nearest}"
                raise ValueError(msg)
            if stride <= before:
                msg = f"strides: {stride} comes after {before}; give them ascending, each once"
                raise ValueError(msg)
        return self


class DataTlb(Experiment, about=__file__):
    """Dependent loads, one line a page, next to as many lines on few pages."""

    name = "data_tlb"
    notebook = "06_memory_levels"
    Params = DataTlbParams
    placed_by_line = True
    columns = (
        key("round", "integer", "number of the round; both kinds of lines are compared within"),
        key("cpu", "integer", "the core that loads, and touched the pages first"),
        key("backing", "text", "the pages that were requested: 4k, thp ..."),
        key("lines", "text", "one a page (spread), or side by side (packed)"),
        key("pages", "integer", "pages that have a line, if spread", least=1),
        Column(
            "stride",
            "integer",
            "",
            "from one such page to the next, in pages; 1 where it is missing",
            role="key",
            least=1,
        ),
        Column(
            "load_ns",
            "number",
            "ns",
            "CPU time of one load that waits for the last",
            True,
            "measured",
        ),
        Column("position", "integer", "", "place of the trial in its round"),
        Column("repeat", "integer", "", "number of the repeat on lines placed once", role="key"),
        Column("loads", "integer", "", "how many loads were timed"),
        Column("time_ns", "number", "ns", "wall time of all loads"),
        *CHASE_COLUMNS,
        ok("its pages or core were not what they should be"),
    )
    claims = (FIRST, SECOND, WAYS, HUGE_PAGES)

    def published(self) -> pd.DataFrame:
        """Entries and ways of the TLBs that serve loads, by microarchitecture, with their source.

        A second level in two parts has two rows.
        """
        import pandas as pd

        from perflib.machine.hardware.known_tlbs import published_names, published_tlbs
        from perflib.machine.hardware.tlbs import serves
        from perflib.model.sentences import size

        rows = [
            (name, tlb.level, ", ".join(map(size, tlb.page_bytes)), tlb.entries, tlb.ways,
             published_tlbs(name).source)
            for name in published_names()
            for tlb in published_tlbs(name).tlbs
            if serves(tlb, "data")
        ]  # fmt: skip
        columns = ["microarchitecture", "level", "pages", "entries", "ways", "source"]
        return pd.DataFrame(rows, columns=columns)

    def _steps(self) -> Steps[DataTlbParams]:
        from perflib.experiments.data_tlb import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot)

    def _figures(self) -> Drawing:
        from perflib.experiments.data_tlb import figures

        return figures


experiment = DataTlb()
