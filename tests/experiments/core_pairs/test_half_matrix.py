"""Half a matrix, as others publish it: a round trip counts for both cores, few pairs for none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from perflib.experiments import get
from perflib.experiments.core_pairs.claims import PARTNERS, SLOWER
from perflib.model.finding import Finding
from tests.experiments.judged import made_run

CORES = np.arange(20)
DIE = CORES // 10
STEPS = np.abs(CORES[:, None] - CORES) % 10
LOWER = np.tril(np.ones((20, 20), dtype=bool), -1)
HALVES = ["lower", "upper", "random"]


def findings(half: str, seed: int, slow: float = 0.0, what: str = "cas_one_line") -> list[Finding]:
    """Of two dies with a ring each, and distances of their own for all pairs; cpu13 is slow."""
    generator = np.random.default_rng(seed)
    own = np.triu(generator.normal(0, 0.02, (20, 20)))
    usual = np.where(DIE[:, None] == DIE, 50.0, 110.0) * np.exp(own + own.T)
    usual *= 1 + 0.01 * np.minimum(STEPS, 10 - STEPS)
    usual[13] *= 1 + slow
    usual[:, 13] *= 1 + slow
    there = {"lower": LOWER, "upper": LOWER.T, "whole": LOWER | LOWER.T}.get(
        half, (generator.random((20, 20)) < 0.5) & ~np.eye(20, dtype=bool)
    )
    table = pd.concat([_round(generator, usual, there, number) for number in range(12)])
    return get("coherence").analyse(made_run(get("coherence"), table.assign(what=what)))


def _round(
    generator: np.random.Generator,
    usual: NDArray[np.float64],
    there: NDArray[np.bool_],
    number: int,
) -> pd.DataFrame:
    owner, requester = np.nonzero(there)
    noise = np.exp(generator.normal(0, 0.03, len(owner)))
    return pd.DataFrame(
        {
            "round": number,
            "owner_cpu": owner,
            "requester_cpu": requester,
            "latency_ns": usual[there] * noise,
            "start_ns": 10**9 * number,
        }
    )


def slower(found: list[Finding]) -> list[int]:
    return [one.about["cpu"] for one in found if one.of is SLOWER and one.verdict == "supported"]


@pytest.mark.parametrize("half", HALVES)
def test_null_no_core_is_slow_in_half_a_matrix(half: str) -> None:
    """Wrong once: the cores at the corner, by what their two or three pairs are apart."""
    assert sum(bool(slower(findings(half, seed))) for seed in range(7)) == 0


@pytest.mark.parametrize("half", HALVES)
def test_a_slow_core_is_named_in_half_a_matrix(half: str) -> None:
    """By five percent more than counts; in two of three runs at least, and no other core."""
    named = [slower(findings(half, seed, slow=0.1)) for seed in range(3)]
    assert all(one in ([], [13]) for one in named)
    assert named.count([13]) >= 2


def test_a_core_with_few_pairs_is_not_judged() -> None:
    """A line that is taken is the requester's: the last cores of a triangle request too few."""
    found = findings("lower", 1, what="modified load")
    (said,) = (one for one in found if one.of is PARTNERS)
    assert said.facts["few"] == ["cpu15", "cpu16", "cpu17", "cpu18", "cpu19"]
    assert "cpu15, cpu16, cpu17, cpu18 and cpu19" in said.plain
    assert [one.about["cpu"] for one in found if one.of is SLOWER] == list(range(15))
    assert not slower(found)
