"""A store and a load at every pair of offsets, timed on each core."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from perflib.experiments.aliasing.map import AliasMapParams
from perflib.experiments.aliasing.map.table import REGIONS, AliasMapTable
from perflib.framework.brackets import bracket_columns
from perflib.framework.experiment import Session
from perflib.kernels import build, record
from perflib.measure.process import Out, Worker, WorkerError
from perflib.measure.schedule import Columns
from perflib.measure.workers import Workers

_LEAST_S = 4.0
_TIMEOUT_S = 120.0


def plan(params: AliasMapParams) -> dict[str, Any]:
    """The cores."""
    return {"cores": params.resolved_cores()}


def take(params: AliasMapParams, session: Session) -> str:
    """The whole map once a round on each core, in an order of its own each time."""
    cores = session.plan["cores"]
    with Workers(build("alias_map"), [params.conditions(cpu) for cpu in cores]) as workers:

        def trial(round_: int, core: int) -> Columns:
            return take_map(workers[core], params, cores[core], round_)

        stopped = session.rounds(
            params, len(cores), trial, lambda samples: AliasMapTable(samples).half_width, _LEAST_S
        )
        session.note(workers)
    return stopped


def cells_of(params: AliasMapParams) -> list[tuple[int, int, int]]:
    """Region, store's and load's offset of every cell, in bytes."""
    offsets = range(-params.reach_bytes, params.reach_bytes + 1, params.step_bytes)
    return [(region, store, load) for region in REGIONS for store in offsets for load in offsets]


def take_map(worker: Worker, params: AliasMapParams, cpu: int, round_: int) -> Columns:
    """Time every cell once on one core, in a random order; the samples as columns."""
    cells = cells_of(params)
    random.Random(f"{params.seed}/{round_}/{cpu}").shuffle(cells)
    region, store, load = np.array(cells, dtype=np.int64).T
    width, built = params.step_bytes, build("alias_map")
    outputs = (
        Out(record(built, "alias_map_sample"), len(cells)),
        Out(record(built, "alias_map_call"), 1),
    )
    answer, (found, call) = worker.call(
        "alias_map_run", np.ascontiguousarray(store), region + load, len(cells), width,
        params.pairs, params.bursts, *outputs, timeout_s=_TIMEOUT_S,
    )  # fmt: skip
    if answer:
        msg = f"alias_map_run() refuses its arguments (error {answer})"
        raise WorkerError(msg)
    ok = (found["loaded"] == expected_loads(store, region + load, width)) & (call["cpu"][0] == cpu)
    count = len(cells)
    return {
        "cpu": [cpu] * count,
        "region_bytes": region.tolist(),
        "store_bytes": store.tolist(),
        "load_bytes": load.tolist(),
        "pair_ns": found["pair_ns"].round(5).tolist(),
        "core_mhz": [round(float(call["core_mhz"][0]), 1)] * count,
        "start_ns": found["slice"]["start_ns"].tolist(),
        "time_ns": found["slice"]["time_ns"].tolist(),
        **bracket_columns(found["slice"]),
        "ok": ok.tolist(),
    }


def expected_loads(store: Sequence[int] | Any, load: Sequence[int] | Any, width: int) -> Any:
    """What each load must find: what was stored where the two agree, the buffer's word elsewhere.

    The reference of ``kernels_c/alias_map.c``: byte ``p`` of its buffer, counted from 1 KiB before
    the place of offset 0, holds ``((p // 8 % 251) ^ (p % 8 * 16)) & 0x7f``.
    """
    place = np.asarray(load, dtype=np.int64)[:, None] + 1024 + np.arange(width)
    held = ((place // 8 % 251) ^ (place % 8 * 16)) & 0x7F
    words = (held.astype(np.uint64) << (8 * np.arange(width, dtype=np.uint64))).sum(
        axis=1, dtype=np.uint64
    )
    stored = np.uint64(2 ** (8 * width) - 1)
    return np.where(np.asarray(store) == np.asarray(load), stored, words)
