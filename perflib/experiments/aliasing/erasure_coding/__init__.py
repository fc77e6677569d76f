"""Erasure coding: do blocks that all begin at a page cost anything?

Storage systems keep data as blocks with Reed–Solomon parity, and such blocks begin at a page: they
come from mmap, from files, from the network card. The source measured encoding of 10 + 4 blocks of
4 MB on one thread, and warned that buffers at the same place in their pages alias.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd
from pydantic import model_validator

from perflib.experiments.aliasing.erasure_coding.measure import (
    IMPLEMENTATIONS,
    LAYOUTS,
    REFERENCE,
    Arm,
    Code,
    ErasureTurns,
    examine,
    reasons,
)
from perflib.experiments.aliasing.erasure_coding.table import ErasureTable, findings_of, l1d_ways_of
from perflib.framework.experiment import Column, Experiment, Session
from perflib.framework.params import Params, Words, parameter
from perflib.machine.hardware.memory import free_bytes
from perflib.model.errors import MeasurementError, UserError, choose
from perflib.model.finding import Finding
from perflib.model.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ErasureCoding", "ErasureCodingParams", "experiment"]

_MIB = 1 << 20
_PAGES_A_MIB = 256
_MOST_BLOCKS = 128  # of each: all together are at most the elements of GF(2^8)
_SOURCE = "R. E. Jensen, P. Simonsen (MemoScale), Storage Developer Conference, 2017"


class ErasureCodingParams(Params):
    """Which code, by whom, and where its blocks begin."""

    budget_s: float = parameter(
        45.0, "the longest time to measure; precision may be reached earlier", "s", gt=0, le=1e6
    )
    precision_percent: float = parameter(
        0.5,
        "measure until the half-width of what a layout costs is below this, for each "
        "implementation",
        "percentage points",
        gt=0,
        le=100,
    )
    implementations: Words = parameter(
        list(IMPLEMENTATIONS),
        "who encodes: ours_table (portable), ours_simd (AVX2), isal (as it chooses), isal_avx2, "
        "jerasure_vandermonde, jerasure_cauchy; what cannot be had is said, and the rest goes on",
    )
    layouts: Words = parameter(
        list(LAYOUTS),
        "where the blocks begin: 'aligned' (at a page, all of them), 'staggered' (no two agree in "
        "the low 12 bits; the others are held against it), 'chasing' (staggered, but loads follow "
        "stores to the same low 12 bits), 'moved' (staggered, all moved together: the null test)",
    )
    data_blocks: int = parameter(10, "how many blocks of data", ge=1, le=_MOST_BLOCKS)
    parity_blocks: int = parameter(
        4, "how many blocks of parity: as many may be lost", ge=1, le=_MOST_BLOCKS
    )
    block_mib: float = parameter(
        4.0, "size of a block, in whole pages of 4 KiB (64 KiB: 0.0625)", "MiB", gt=0, le=1024
    )
    turn_ms: float = parameter(
        5.0, "how long one sample is timed at least, in whole encodings", "ms", gt=0, le=10_000
    )
    threshold_percent: float = parameter(
        1.0, "a layout counts as slower from this on", "percent", gt=0, le=1000
    )

    @model_validator(mode="after")
    def _arms_can_be_had(self) -> ErasureCodingParams:
        for field, known, what in (
            ("implementations", IMPLEMENTATIONS, "implementation"),
            ("layouts", LAYOUTS, "layout"),
        ):
            for name in getattr(self, field):
                if name not in known:
                    msg = f"{field}: {choose(what, name, known)}"
                    raise ValueError(msg)
        if REFERENCE not in self.layouts or len(set(self.layouts)) < 2:
            msg = f"layouts: it takes {REFERENCE!r} and another one to hold against it"
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


class ErasureCoding(Experiment):
    """Reed–Solomon encoding by several implementations, with blocks laid in several ways."""

    name = "erasure_coding"
    title = "Erasure coding: blocks at the same place in their pages"
    question = "Does it cost anything that all blocks of an erasure code begin at a page?"
    notebook = "12_erasure_coding"
    Params: ClassVar[type[Params]] = ErasureCodingParams
    columns = (
        Column("round", "integer", "", "number of the round; layouts are compared within", True),
        Column("cpu", "integer", "", "the core", True),
        Column("implementation", "text", "", "who encoded", True),
        Column("layout", "text", "", "where the blocks began", True),
        Column("data_bytes", "integer", "B", "encoded, parity not counted", True),
        Column("time_ns", "integer", "ns", "wall time of that", True),
        Column("position", "integer", "", "place of the turn in its round"),
        Column(
            "start_ns",
            "integer",
            "ns",
            "when it began, on one clock for the whole run; without it rounds count alike",
        ),
        Column("involuntary_switches", "integer", "", "times the thread was pushed aside"),
        Column(
            "ok",
            "boolean",
            "",
            "false: addresses, core or parity were not what they should be; it is not used",
        ),
    )
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"budget_s": 30.0},
        "full": {"budget_s": 600.0, "cores": "all", "precision_percent": 0.2, "turn_ms": 20.0},
    }

    # --- measuring -------------------------------------------------------------------------------

    def plan(self, params: ErasureCodingParams) -> dict[str, Any]:
        """The cores, and which implementations can be had: each is verified here."""
        cores = params.resolved_cores()
        code, free = params.code, free_bytes()
        needed = code.blocks * code.block_bytes
        if free is not None and needed > free / 2:
            msg = (
                f"block_mib: {code.blocks} blocks of {params.block_mib:g} MiB are "
                f"{needed / _MIB:.0f} MiB, and {free / _MIB:.0f} MiB are free, of which half is "
                f"used at most: give {free / 2 / code.blocks / _MIB:.0f} at most"
            )
            raise UserError(msg)
        examined, absent = examine(
            params.implementations, code, params.seed, params.turn_ms, params.conditions(cores[0])
        )
        if not examined:
            msg = f"none of the implementations can be had here: {'; '.join(reasons(absent))}"
            raise MeasurementError(msg)
        return {
            "cores": cores,
            "implementations": examined,
            "absent": absent,
            "arms": [Arm(core, name) for core in range(len(cores)) for name in examined],
        }

    def take(self, params: ErasureCodingParams, session: Session) -> str:
        """Every implementation on every core once a round, in every layout."""
        plan = session.plan
        arms = [Arm(*arm) for arm in plan["arms"]]
        conditions = [params.conditions(cpu) for cpu in plan["cores"]]
        layouts = list(dict.fromkeys(params.layouts))
        with ErasureTurns(
            params.code, layouts, plan["implementations"], conditions, arms, params.seed
        ) as turns:
            stopped = session.rounds(
                params, len(arms), turns.take, lambda samples: ErasureTable(samples).half_width
            )
            session.note(turns)
        session.problems += reasons(plan["absent"])
        return stopped

    # --- what it says ----------------------------------------------------------------------------

    def analyse(self, run: Run) -> list[Finding]:
        """Of each implementation: what aligned blocks cost, what aliases cost, the null test."""
        params = ErasureCodingParams.make(run.params)
        ways = l1d_ways_of(run.provenance.get("machine", {}))
        table = ErasureTable(run.samples)
        return findings_of(table, params.threshold_percent, params.code.blocks, ways)

    def figures(self, run: Run) -> dict[str, Figure]:
        """MB/s by implementation and layout; what each layout costs."""
        from perflib.experiments.aliasing.erasure_coding import figures as erasure_figures

        table = ErasureTable(run.samples)
        threshold = ErasureCodingParams.make(run.params).threshold_percent
        return {
            "speed": erasure_figures.speed(table),
            "layout_cost": erasure_figures.layout_cost(table, threshold),
        }

    def published(self) -> pd.DataFrame:
        """What the source says of its benchmark: its figures of the speeds carry no numbers."""
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


experiment = ErasureCoding()
