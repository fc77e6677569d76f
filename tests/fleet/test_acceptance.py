"""A node compared with the nodes of its model: by simulation, with noise that is not the model's.

`benchmarks/acceptance.py` has the figures of many repetitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from perflib.fleet.analysis.acceptance import compare_node
from tests.stats.simulated import at_most

Floats = NDArray[np.float64]
DAY = pd.Timestamp("2026-03-02", tz="UTC")
NOISES = ("t3", "skewed", "mixed")
SLOW, SLOW_CORE = np.log(1.03), np.log(1.05)


def drawn(rng: np.random.Generator, noise: str, shape: tuple[int, ...]) -> Floats:
    """Noise of the size of one, with heavy tails."""
    if noise == "t3":
        return np.asarray(rng.standard_t(3, shape) / np.sqrt(3))
    if noise == "skewed":
        return rng.lognormal(0, 0.7, shape) / 1.07
    far = np.where(rng.random(shape) < 0.1, 4.0, 1.0)
    return rng.normal(0, 1, shape) * far / 1.58


@dataclass(frozen=True)
class Model:
    """A model's nodes, the last of which is new, with standard deviations of logs.

    Nodes and their cores differ lastingly; the hall's days do, and a node's days resemble the day
    before.
    """

    nodes: int = 20
    cores: int = 64
    days: int = 3
    noise: str = "t3"
    node: float = 0.002
    day: float = 0.002
    run: float = 0.0015
    own: float = 0.0015
    core: float = 0.002
    hall: float = 0.001

    def logs(self, rng: np.random.Generator) -> Floats:
        """``[node, day, core]``; the last two days are the new node's two measurements."""
        shape = (self.nodes + 1, self.days + 2, self.cores)

        def noise(*axes: int) -> Floats:
            return drawn(
                rng, self.noise, tuple(n if a else 1 for n, a in zip(shape, axes, strict=True))
            )

        by_day = noise(1, 1, 0)
        for day in range(1, shape[1]):
            by_day[:, day] = 0.7 * by_day[:, day - 1] + 0.71 * by_day[:, day]
        by_day[:, -1] = by_day[:, -2]  # measured again at once
        hall = self.hall * noise(0, 1, 0)
        hall[:, -1] = hall[:, -2]
        log = self.node * noise(1, 0, 0) + self.day * by_day + self.run * noise(1, 1, 0) + hall
        log = log + self.own * noise(1, 0, 1) + self.core * noise(1, 1, 1)
        return log + rng.normal(0, 0.01, (1, 1, self.cores))  # positions


def tables(log: Floats, again: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The farm's levels, and the new node's."""
    nodes, days, cores = log[:-1, :-2].shape
    runs = nodes * days
    minutes = 1440 * (np.arange(runs) % days) + np.arange(runs) % 600
    farm = pd.DataFrame(
        {
            "node": np.repeat([f"n{run // days}" for run in range(runs)], cores),
            "model": "A",
            "cpu": np.tile(np.arange(cores), runs),
            "start": (DAY + pd.to_timedelta(minutes, unit="min")).as_unit("ns").repeat(cores),
            "experiment": "kv_per_core",
            "setting": "s",
            "value": 40 * np.exp(log[:-1, :-2].ravel()),
            "run": np.repeat([f"r{run}" for run in range(runs)], cores),
        }
    )
    mine = log[-1, -1 if again else -2]
    new = pd.DataFrame({"cpu": np.arange(cores), "setting": "s", "value": 40 * np.exp(mine)})
    start = DAY + pd.Timedelta(days=days + 3)
    return farm, new.assign(start=start, experiment="kv_per_core")


def beyond(log: Floats) -> pd.Series[Any]:
    """Of the node (-1) and each core whether both measurements refuse it."""
    both = [compare_node(*tables(log, again)).set_index("cpu") for again in (False, True)]
    shown = [one["effect"] > one["half"].clip(lower=0.01) for one in both]
    return shown[0] & shown[1]


@pytest.mark.parametrize("noise", NOISES)
def test_healthy_nodes_are_rarely_refused(noise: str) -> None:
    found = [beyond(Model(noise=noise).logs(np.random.default_rng(seed))) for seed in range(30)]
    assert sum(one[-1] for one in found) <= at_most(len(found), 0.01)
    assert sum(one.drop(-1).any() for one in found) <= at_most(len(found), 0.01)


@pytest.mark.parametrize("noise", NOISES)
def test_a_slow_node_and_a_slow_core_are_named(noise: str) -> None:
    node = core = 0
    for seed in range(12):
        log = Model(noise=noise).logs(np.random.default_rng(seed))
        log[-1] += SLOW
        node += beyond(log)[-1]
        log[-1] -= SLOW
        log[-1, :, 20] += SLOW_CORE
        found = beyond(log)
        core += found[20]
        assert found.drop([20, -1]).sum() <= 1
    assert node >= 9
    assert core >= 10


def test_five_nodes_are_enough_to_begin() -> None:
    for seed in range(6):
        log = Model(nodes=5, days=4, cores=8).logs(np.random.default_rng(seed))
        log[-1] += np.log(1.06)
        assert beyond(log)[-1]
    few, new = tables(Model(nodes=4, cores=8).logs(np.random.default_rng(0)))
    (row,) = compare_node(few, new).to_dict("records")
    assert (row["why"], row["nodes"]) == ("few_nodes", 4)


def test_a_slow_position_of_the_model_is_no_fault_of_the_node() -> None:
    log = Model(cores=16).logs(np.random.default_rng(1))
    log[:, :, 8] += np.log(1.12)
    assert not beyond(log).any()


def test_slow_nodes_and_cores_in_the_farm_do_not_hide_another() -> None:
    log = Model(nodes=40, cores=16).logs(np.random.default_rng(2))
    log[3] += 0.1
    log[7, :, 5] += 0.2
    log[-1] += SLOW
    log[-1, :, 2] += np.log(1.06)
    found = beyond(log)
    assert found[-1]
    assert found[2]


def test_what_days_do_to_all_widens_the_interval() -> None:
    """A new day does something else; it is no fault of the node that was measured then."""
    refused = 0
    for seed in range(20):
        calm = Model(nodes=12, cores=4, days=5, hall=0.01)
        refused += beyond(calm.logs(np.random.default_rng(seed)))[-1]
    assert refused <= at_most(20, 0.01)


def test_other_settings_and_cores_are_not_compared() -> None:
    farm, new = tables(Model(cores=4).logs(np.random.default_rng(3)))
    (row,) = compare_node(farm, new.assign(setting="other")).to_dict("records")
    assert row["why"] == "not_common"
    one_core = compare_node(farm, new[new["cpu"] == 2])
    assert list(one_core["kind"]) == ["node"]  # one core has no others, and is compared as a whole
    (row,) = compare_node(farm, new.assign(experiment="numa")).to_dict("records")
    assert row["why"] == "not_measured"


def test_equal_values_have_an_interval() -> None:
    """A coarse clock: all nodes agree to the last digit."""
    farm, new = tables(np.zeros((7, 5, 4)))
    found = compare_node(farm, new)
    assert np.isfinite(found["half"]).all()
    assert (found["effect"].abs() < found["half"]).all()
