"""The source's two servers as tables of samples: published figures, with noise added.

Nothing here was measured: the figures are those of ``published("microbench_latency")``, spread over
the cores as the source describes its servers. They are to learn reading a heatmap by.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.framework.published import published
from perflib.model.errors import UserError, choose

__all__ = ["SERVERS", "noisy_samples", "published_matrix"]

SERVERS = {"intel": "4x Intel Xeon Gold 6130", "amd": "2x AMD EPYC 7451"}


def published_matrix(server: str) -> NDArray[np.float64]:
    """``[alloc, load]``: cycles of one load from memory, for each pair of physical cores.

    Parameters
    ----------
    server
        ``intel``: 4 sockets of 16 cores; ``amd``: 2 sockets of 4 dies of 2 CCX of 3 cores.

    Raises
    ------
    UserError
        There is no such server.
    """
    if server not in SERVERS:
        raise UserError(choose("server", server, SERVERS))
    table = published("microbench_latency")
    mine = table[table["machine"] == SERVERS[server]]
    cycles: Mapping[str, float] = dict(zip(mine["level"], mine["latency_cycles"], strict=True))
    if server == "intel":
        near = _same(np.arange(64) // 16)
        return np.where(near, cycles["local RAM"], cycles["RAM of another socket"]).astype(float)
    cores = np.arange(48)
    return np.select(
        [_same(cores // 3), _same(cores // 6), _same(cores // 24), _same(cores // 6 % 4)],
        [
            cycles["RAM of the same die"],
            cycles["RAM of the same die from the other CCX"],
            cycles["RAM of another die of the socket"],
            cycles["RAM of the preferred die of the other socket"],
        ],
        cycles["RAM of another die of the other socket"],
    ).astype(float)


def _same(part: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.asarray(part[:, None] == part)


def noisy_samples(server: str, rounds: int = 16, noise: float = 0.1, seed: int = 1) -> pd.DataFrame:
    """Samples as a run on that server might give them: the published figures with noise added.

    Parameters
    ----------
    server
        As for ``published_matrix``.
    rounds
        How often each cell is there.
    noise
        Standard deviation of a sample's logarithm.
    seed
        Of the noise.
    """
    cycles = published_matrix(server)
    generator = np.random.default_rng(seed)
    shape = rounds, *cycles.shape
    round_, alloc, load = (index.ravel() for index in np.indices(shape))
    latency = cycles * np.exp(noise * generator.standard_normal(shape))
    return pd.DataFrame(
        {
            "round": round_,
            "alloc_cpu": alloc,
            "load_cpu": load,
            "latency_cycles": latency.ravel(),
        }
    )
