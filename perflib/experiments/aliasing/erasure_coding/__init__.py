"""Erasure coding: do blocks that all begin at a page cost anything?

Storage systems keep data as blocks with Reed–Solomon parity, and such blocks begin at a page: they
come from mmap, from files, from the network card. Jensen and Simonsen (2017) measured encoding of
10 + 4 blocks of 4 MB on one thread, and warned that buffers at the same place in their pages alias.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pydantic import field_validator, model_validator

from perflib.experiments.aliasing.erasure_coding.claims import CLAIMS
from perflib.experiments.aliasing.erasure_coding.layouts import (
    IMPLEMENTATIONS,
    LAYOUTS,
    REFERENCE,
    Code,
)
from perflib.framework.brackets import PROBE_COLUMNS
from perflib.framework.experiment import Experiment
from perflib.framework.params import Params, Words, budget, known_names, limit, parameter, precision
from perflib.framework.results import RESULTS
from perflib.framework.schema import START, Column, key, ok

if TYPE_CHECKING:
    import pandas as pd
from perflib.framework.steps import Drawing, Steps

__all__ = ["ErasureCoding", "ErasureCodingParams", "experiment"]

_MIB = 1 << 20
_PAGES_A_MIB = 256
_MOST_BLOCKS = 128  # of each: all together are at most the elements of GF(2^8)
_SOURCE = "R. E. Jensen, P. Simonsen (MemoScale), Storage Developer Conference, 2017"


class ErasureCodingParams(Params):
    """Which code, by whom, and where its blocks begin."""

    budget_s: float = budget(45.0)
    precision_percent: float = precision(
        0.5, "the half-width of what a layout costs is below this, for each implementation"
    )
    implementations: Words = parameter(
        list(IMPLEMENTATIONS),
        "who encodes: ours_table (portable), ours_simd (AVX2), isal (as it chooses), isal_avx2, "
        "jerasure_vandermonde, jerasure_cauchy; what is not there is reported, the rest goes on",
    )
    layouts: Words = parameter(
        list(LAYOUTS),
        "where the blocks begin: 'aligned' (at a page, all of them), 'staggered' (no two agree in "
        "the low 12 bits; the others are compared with it), 'chasing' (staggered, but loads follow "
        "stores to the same low 12 bits), 'shifted' (staggered, all by half a page: the control)",
    )
    data_blocks: int = parameter(10, "how many blocks of data", ge=1, le=_MOST_BLOCKS)
    parity_blocks: int = parameter(
        4, "how many blocks of parity: as many may be lost", ge=1, le=_MOST_BLOCKS
    )
    block_mib: float = parameter(
        4.0, "size of a block, in whole pages of 4 KiB (64 KiB: 0.0625)", "MiB", gt=0, le=1024
    )
    trial_ms: float = parameter(
        5.0,
        "how long a layout is timed at least in a trial, in whole encodings, in slices",
        "ms",
        gt=0,
        le=10_000,
    )
    threshold_percent: float = limit(1.0, "a layout counts as slower from this on")

    @field_validator("layouts", mode="after")
    @classmethod
    def _as_earlier_runs_say(cls, layouts: list[str]) -> list[str]:
        return ["shifted" if layout == "moved" else layout for layout in layouts]

    @model_validator(mode="after")
    def _configurations_exist(self) -> ErasureCodingParams:
        implementations = tuple(IMPLEMENTATIONS)
        known_names("implementations", "implementation", self.implementations, implementations)
        known_names("layouts", "layout", self.layouts, LAYOUTS)
        if REFERENCE not in self.layouts or len(set(self.layouts)) < 2:
            msg = f"layouts: it takes {REFERENCE!r} and another one to compare with it"
            raise ValueError(msg)
        if not math.isclose(self.block_mib * _PAGES_A_MIB % 1, 0):
            msg = (
                f"block_mib: {self.block_mib:g} MiB are no whole pages of 4 KiB; give a multiple "
                f"of {1 / _PAGES_A_MIB}"
            )
            raise ValueError(msg)
        return self

    @property
    def code(self) -> Code:
        """What is encoded."""
        return Code(self.data_blocks, self.parity_blocks, int(self.block_mib * _MIB))


class ErasureCoding(Experiment, about=__file__):
    """Reed–Solomon encoding by several implementations, with blocks placed in several ways."""

    name = "erasure_coding"
    notebook = "12_erasure_coding"
    Params = ErasureCodingParams
    columns = (
        key("round", "integer", "number of the round; layouts are compared within"),
        key("cpu", "integer", "the core"),
        key("implementation", "text", "who encoded"),
        key("layout", "text", "where the blocks began"),
        Column(
            "data_bytes", "integer", "B", "encoded in the slice, parity not counted", True, least=1
        ),
        Column("time_ns", "integer", "ns", "wall time of that", True, "measured"),
        Column("position", "integer", "", "place of the trial in its round"),
        START,
        *PROBE_COLUMNS,
        Column("involuntary_switches", "integer", "", "of the thread, in all slices of the layout"),
        ok("addresses, core or parity were not what they should be"),
        *RESULTS,
    )

    same_work = ("implementation",)
    claims = CLAIMS
    renamed = {"turn_ms": "trial_ms"}

    def published(self) -> pd.DataFrame:
        """What its authors say of their benchmark: the figures of the speeds carry no numbers."""
        import pandas as pd

        rows = [
            ("data blocks", "10"),
            ("redundancy blocks", "4"),
            ("block size", "4 MB"),
            ("threads", "1"),
            ("what counts", "data encoded, redundancy excluded, MB/s"),
            ("libraries", "Jerasure, Intel ISA-L, MemoScale"),
            ("processors", "Intel Xeon E5-2676 v3; HiSilicon Kirin 620; AMD Ryzen 7 1700"),
            ("speeds", "bars without numbers"),
            ("aligned against staggered blocks", "not measured"),
            ("source", _SOURCE),
        ]
        return pd.DataFrame(rows, columns=["quantity", "value"])

    def _steps(self) -> Steps[ErasureCodingParams]:
        from perflib.experiments.aliasing.erasure_coding import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot)

    def _figures(self) -> Drawing:
        from perflib.experiments.aliasing.erasure_coding import figures

        return figures


experiment = ErasureCoding()
