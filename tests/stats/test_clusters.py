"""Groups of cores from matrices: those of the source's servers, noise, gaps and slow cores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from perflib.stats.clusters import find_groups

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Two EPYC 7451: 3 cores a CCX, 2 CCX a die, 4 dies a socket.
CORES = np.arange(48)
CCX, DIE, SOCKET = CORES // 3, CORES // 6, CORES // 24
AMD = np.full((48, 48), 630.0)
for shared, cycles_ in ((DIE % 4, 480.0), (SOCKET, 300.0), (DIE, 205.0), (CCX, 185.0)):
    AMD[shared[:, None] == shared] = cycles_


def sockets(cores: int, number: int = 2) -> tuple[Ints, Floats]:
    """The source's Intel server with fewer cores."""
    socket = np.arange(cores * number) // cores
    return socket, np.where(socket[:, None] == socket, 220.0, 360.0)


def noisy(
    generator: np.random.Generator, cycles: Floats, batches: int, noise: float = 0.1
) -> Floats:
    drift = 0.05 * generator.standard_normal((batches, 1, 1))
    drift -= drift.mean()
    scatter = noise * generator.standard_normal((batches, *cycles.shape))
    return np.asarray(cycles * np.exp(drift + scatter))


def shuffled(generator: np.random.Generator, cells: Floats) -> tuple[Floats, Ints]:
    order = generator.permutation(cells.shape[-1])
    return cells[..., order, :][..., order], order


def same_groups(labels: Ints, truth: Ints) -> bool:
    """Labels are counted from the first core on in both."""
    _, first, inverse = np.unique(truth, return_index=True, return_inverse=True)
    return bool((labels == np.argsort(np.argsort(first))[inverse]).all())


# --- figures to reach --------------------------------------------------------------------------


@pytest.mark.parametrize(("cores", "batches"), [(8, 8), (16, 1)])
def test_two_sockets_are_recovered_whatever_the_numbers_of_their_cores(
    cores: int, batches: int
) -> None:
    socket, cycles = sockets(cores)
    generator = np.random.default_rng(cores + batches)
    right = 0
    for _ in range(20):
        cells, order = shuffled(generator, noisy(generator, cycles, batches))
        found = find_groups(cells)
        right += same_groups(found.labels, socket[order]) and len(found.classes) == 2
        assert found.p < 0.001
        assert math.isnan(found.bound)
    assert right >= 19


def test_ccx_dies_sockets_and_partners_are_recovered_from_sixteen_batches() -> None:
    generator = np.random.default_rng(1)
    right = 0
    for _ in range(8):
        cells, order = shuffled(generator, noisy(generator, AMD, 16))
        found = find_groups(cells)
        levels = [same_groups(level, truth[order]) for level, truth in zip(
            found.hierarchy, (CCX, DIE, SOCKET), strict=False)]  # fmt: skip
        assert found.hierarchy[-1].max() == 1
        if levels != [True] * 3 or len(found.classes) != 5:
            continue
        right += same_groups(found.labels, CCX[order])
        assert [near.effect for near in found.classes] == pytest.approx(
            [185, 205, 300, 480, 630], rel=0.02
        )
        first = [int(order[np.argmax(found.labels == n)]) for n in range(found.count)]
        assert all(DIE[first[a]] % 4 == DIE[first[b]] % 4 for a, b in found.partners)
        assert len(found.partners) == 16
    assert right >= 7


def test_one_matrix_shows_dies_sockets_and_partners() -> None:
    generator = np.random.default_rng(2)
    right = 0
    for _ in range(10):
        found = find_groups(noisy(generator, AMD, 1)[0])
        right += same_groups(found.labels, DIE) and same_groups(found.hierarchy[-1], SOCKET)
        right -= len(found.classes) != 4
    assert right >= 9


@pytest.mark.parametrize(
    ("cores", "batches"),
    [
        (2, 8), (4, 1), (4, 8), (6, 8), (8, 1), (16, 8),
        *(pytest.param(*case, marks=pytest.mark.slow)
          for case in ((2, 1), (6, 1), (8, 8), (16, 1), (32, 1), (32, 8))),
    ],
)  # fmt: skip
def test_noise_is_one_group(cores: int, batches: int) -> None:
    generator = np.random.default_rng(cores)
    runs = 40
    one = 0
    for _ in range(runs):
        found = find_groups(noisy(generator, np.full((cores, cores), 100.0), batches))
        one += found.count == 1
        if found.count == 1:
            assert (found.hierarchy, found.partners) == ((), ())
            assert (found.membership == 0).all()
            assert len(found.classes) == 1
    assert one >= runs - 1


# --- what is in the way ------------------------------------------------------------------------


def test_missing_cells_and_a_missing_core() -> None:
    socket, cycles = sockets(8)
    generator = np.random.default_rng(4)
    for _ in range(20):
        cells = noisy(generator, cycles, 8)
        cells[:, generator.random(cycles.shape) < 0.1] = np.nan
        cells[generator.random(cells.shape) < 0.1] = np.nan
        cells[:, 5] = cells[:, :, 5] = np.nan
        found = find_groups(cells)
        assert found.labels[5] == -1
        assert (found.membership[5] == -1).all()
        assert math.isnan(found.core[5].effect)
        assert same_groups(np.delete(found.labels, 5), np.delete(socket, 5))
        assert [near.effect for near in found.classes] == pytest.approx([220, 360], rel=0.04)


def test_slow_core_is_no_group_but_is_named() -> None:
    socket, cycles = sockets(8)
    generator = np.random.default_rng(5)
    for slow in (1.2, 2.0):
        cells = noisy(generator, cycles, 8, 0.03)
        cells[:, 3] *= slow
        cells[:, :, 3] *= slow
        found = find_groups(cells)
        assert same_groups(found.labels, socket)
        assert found.core[3].low <= math.log(slow) * 1.03
        assert found.core[3].effect == pytest.approx(math.log(slow), abs=0.05)
        assert abs(found.core[4].effect) < 0.05
        assert [near.effect for near in found.classes] == pytest.approx([220, 360], rel=0.03)


def test_groups_of_different_sizes_and_siblings() -> None:
    generator = np.random.default_rng(6)
    for label in (np.repeat([0, 1], [12, 4]), np.arange(16) // 2, np.arange(12) // 3):
        cells = noisy(generator, np.where(label[:, None] == label, 20.0, 80.0), 8)
        assert same_groups(find_groups(cells).labels, label)
        assert same_groups(find_groups(cells[0]).labels, label)


def test_four_cores_are_two_groups_only_if_batches_say_so() -> None:
    socket, cycles = sockets(2)
    cells = noisy(np.random.default_rng(7), cycles, 12, 0.03)
    assert same_groups(find_groups(cells).labels, socket)
    assert find_groups(cells[0]).count == 1


@pytest.mark.slow
def test_large_matrix() -> None:
    socket, cycles = sockets(32, 4)
    found = find_groups(noisy(np.random.default_rng(9), cycles, 4))
    assert same_groups(found.labels, socket)
    assert len(found.hierarchy) == 1


# --- bounds and intervals ----------------------------------------------------------------------


def test_null_two_cores_of_one_node_are_one_group_and_the_bound_holds() -> None:
    generator = np.random.default_rng(10)
    cycles = np.array([[100.0, 101.0], [101.0, 100.0]])
    several = bounded = covered = 0
    for _ in range(100):
        found = find_groups(noisy(generator, cycles, 8, 0.02))
        several += found.count > 1
        covered += found.count > 1 or found.own.low <= math.log(1.01) <= found.own.high
        bounded += found.count > 1 or found.bound >= math.log(1.01)
    assert several <= 1  # 0.2 % of them, beyond a threshold of 2 %
    assert covered >= 90
    assert bounded >= 92
    quiet = find_groups(noisy(generator, np.full((2, 2), 100.0), 8, 0.001))
    assert quiet.bound < 0.01


def test_of_three_cores_the_two_of_one_node_are_together() -> None:
    generator = np.random.default_rng(21)
    node = np.array([0, 1, 0])
    cycles = np.where(node[:, None] == node, 220.0, 360.0)
    assert find_groups(noisy(generator, cycles, 8, 0.02)).labels.tolist() == [0, 1, 0]


def test_two_cores_without_a_diagonal_show_nothing() -> None:
    generator = np.random.default_rng(22)
    cycles = np.array([[np.nan, 100.0], [100.0, np.nan]])
    found = find_groups(noisy(generator, cycles, 8, 0.001))
    assert found.count == 1
    assert math.isnan(found.bound)


def test_bound_of_one_group_holds_for_halves_too_little_apart_to_be_found() -> None:
    socket, _ = sockets(8)
    cycles = np.where(socket[:, None] == socket, 100.0, 101.0)
    generator = np.random.default_rng(11)
    found = [find_groups(noisy(generator, cycles, 8)) for _ in range(20)]
    bounds = [groups.bound for groups in found if groups.count == 1]
    assert len(bounds) >= 19
    assert sum(bound >= math.log(1.01) for bound in bounds) >= len(bounds) - 1
    assert max(bounds) < 0.2


def test_intervals_of_classes_cover() -> None:
    _, cycles = sockets(8)
    generator = np.random.default_rng(12)
    covered = 0
    for _ in range(30):
        cells = cycles * np.exp(0.05 * generator.standard_normal((8, 16, 16)))
        near, far = find_groups(cells).classes
        covered += (near.low <= 220 <= near.high) + (far.low <= 360 <= far.high)
    assert covered >= 53


# --- what it is given --------------------------------------------------------------------------


def test_matrix_without_noise_or_diagonal_or_direction() -> None:
    socket, cycles = sockets(4)
    plain = cycles.copy()
    np.fill_diagonal(plain, np.nan)
    found = find_groups(plain)
    assert same_groups(found.labels, socket)
    assert math.isnan(found.own.effect)
    plain[np.tril_indices(8)] = np.nan
    assert same_groups(find_groups(plain).labels, socket)
    assert find_groups(np.full((8, 8), 100.0)).count == 1


def test_nothing_known() -> None:
    found = find_groups(np.full((4, 3, 3), np.nan))
    assert found.labels.tolist() == [-1, -1, -1]
    assert (found.count, found.classes, found.p) == (0, (), 1.0)
    assert find_groups(np.zeros((0, 0))).count == 0
    alone = find_groups(np.array([[3.0]]))
    assert (alone.count, alone.p) == (0, 1.0)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (np.ones((2, 3)), "core, core"),
        (np.ones(3), "core, core"),
        (np.zeros((2, 2)), "positive"),
        (np.full((2, 2), np.inf), "positive"),
    ],
)
def test_wrong_matrices_are_refused(cells: Floats, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_groups(cells)
