"""Large code: what ``random_calls`` and ``code_segment`` share.

Both sweep the size of the code that runs; cores, sizes and page backings are interleaved in rounds.
Their kernels have one interface (``kernels_c/common/code_kernel.h``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from perflib.experiments.code_size.claims import HYPOTHESES
from perflib.framework.brackets import PROBE_COLUMNS
from perflib.framework.experiment import Experiment
from perflib.framework.params import Items, Params, Words, budget, limit, parameter, precision
from perflib.framework.results import RESULTS, SAMPLE
from perflib.framework.schema import START, Column, key, ok

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CodeParams", "CodeSweep", "Sizes"]

Sizes = Items[Annotated[int, Field(ge=4, le=65536)]]

_IN_SHARES = "those of a trial, in equal shares for its samples"


class CodeParams(Params):
    """Which sizes of code, on which pages."""

    budget_s: float = budget(42.0)
    precision_percent: float = precision(
        0.5,
        "the half-width of what large code costs, between cores and between page sizes, is "
        "below this",
    )
    backings: Words = parameter(
        ["4k", "huge"],
        "the pages that the code is on: 4k, thp, collapse, hugetlb, hugectl, or 'huge', the "
        "first available of thp and collapse; the run says which are not, and continues",
    )
    sizes_kib: Sizes = parameter([], "sizes of the code", "KiB")
    trial_ms: float = parameter(
        2.0,
        "how long a trial is timed, after its warm-up, in samples of at most 0.3 ms each; up to "
        "three times as long where too few of them have the core alone",
        "ms",
        ge=0.1,
        le=10_000,
    )
    threshold_percent: float = limit(
        1.0, "a core, or a size of pages, counts as slower from this on"
    )


class CodeSweep(Experiment, about=__file__):
    """What both experiments declare alike."""

    columns = (
        key("round", "integer", "number of the round; configurations are compared within"),
        key("cpu", "integer", "the core"),
        key("pattern", "text", "the order in which code runs"),
        key("backing", "text", "the pages that were requested: 4k, thp ..."),
        key("n", "integer", "how many pieces of code were in use", least=1),
        key("code_bytes", "integer", "extent of the code that ran", "B", least=1),
        Column("steps", "integer", "", "pieces of code that were run", True, least=1),
        Column("time_ns", "number", "ns", "wall time of all steps", True, "measured"),
        *PROBE_COLUMNS,
        Column("position", "integer", "", "place of the trial in its round"),
        START,
        Column("core_mhz", "number", "MHz", "the core's frequency just before and after"),
        Column("huge_bytes", "integer", "B", "of the code, what was found on 2 MiB pages"),
        Column("softirqs", "number", "", f"soft interrupts on the core meanwhile; {_IN_SHARES}"),
        Column("interrupts", "number", "", f"interrupts on the core meanwhile; {_IN_SHARES}"),
        Column("switches", "number", "", f"context switches on the core meanwhile; {_IN_SHARES}"),
        Column("involuntary_switches", "integer", "", "times the thread was preempted"),
        Column(
            "itlb_misses", "number", "", f"counted by the processor, where it can; {_IN_SHARES}"
        ),
        ok("its pages, core or result were not what they should be"),
        *RESULTS,
    )
    same_work = ("round", "pattern", "n", SAMPLE)
    placed_by_line = True
    hypotheses = HYPOTHESES
    published_table = "kv_haswell"
    renamed = {"turn_ms": "trial_ms"}

    def published(self) -> pd.DataFrame | None:
        """What Guerri et al. 2015 report of their two synthetic benchmarks."""
        table = super().published()
        assert table is not None
        return table[table["where"].str.contains("benchmark")].reset_index(drop=True)
