"""The source's servers as tables, to learn from."""

from __future__ import annotations

import numpy as np
import pytest

from perflib.experiments import get
from perflib.experiments.core_pairs.numa.published import noisy_samples, published_matrix
from perflib.model.errors import UserError
from perflib.model.run import Run
from tests.experiments.core_pairs.cell_samples import AMD


def test_the_published_figures_where_the_source_says_they_are() -> None:
    assert (published_matrix("amd") == AMD).all()
    intel = published_matrix("intel")
    assert intel.shape == (64, 64)
    assert (intel[:16, :16] == 220).all()
    assert (intel[:16, 16:] == 360).all()


def test_samples_scatter_about_them() -> None:
    table = noisy_samples("intel", rounds=4)
    assert len(table) == 4 * 64 * 64
    assert (table == noisy_samples("intel", rounds=4)).all(axis=None)
    near = table[table["alloc_cpu"] // 16 == table["load_cpu"] // 16]["latency_cycles"]
    assert np.log(near / 220).std() == pytest.approx(0.1, rel=0.05)
    assert np.log(near / 220).mean() == pytest.approx(0.0, abs=0.005)


def test_the_experiment_finds_the_groups_in_them() -> None:
    groups, *_ = get("numa").analyse(Run("x", "numa", {}, noisy_samples("intel", rounds=4)))
    assert (groups.subject, groups.effect) == ("groups", 4.0)


def test_another_server() -> None:
    with pytest.raises(UserError, match="unknown server 'arm'"):
        published_matrix("arm")
