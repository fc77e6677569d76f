"""What a seed means: reproducible, every cause at its levels, and nothing that cannot be made."""

from __future__ import annotations

from collections import Counter

import pytest

from perflib.course.mystery.causes import CAUSES, FUNCTIONS, LEVELS, LOCKS, NOTHING, Level
from perflib.course.mystery.draw import Machine, Trouble, draw, impossible

WHOLE = Machine((0, 1), quota=True, job="")
SEEDS = range(600)


def all_of(level: Level, machine: Machine = WHOLE) -> list[Trouble]:
    return [draw(seed, level, machine) for seed in SEEDS]


def test_a_seed_is_the_same_trouble_in_every_version() -> None:
    assert draw(7, "easy", WHOLE) == draw(7, "easy", WHOLE)
    found = {level: draw(7, level, WHOLE) for level in LEVELS}
    assert found == {
        "easy": Trouble("quota", "", 1, 0, 436, 0, 1),
        "medium": Trouble("function", "shape_pulse", 0, 2, 982, 0, 0),
        "hard": Trouble("lock", "output_lock", 1, 2, 390, 3, 0),
    }


@pytest.mark.parametrize("level", LEVELS)
def test_seeds_cover_the_causes_of_a_level(level: Level) -> None:
    found = Counter(one.cause for one in all_of(level))
    assert found.keys() == {name for name, cause in CAUSES.items() if level in cause.sizes}
    assert min(found.values()) > len(SEEDS) / len(CAUSES) / 3


def test_seeds_cover_places_and_sizes() -> None:
    found = all_of("medium")
    places = {cause: {one.place for one in found if one.cause == cause} for cause in CAUSES}
    assert places["thief"] == places["hog"] == places["code"] == {"cpu0", "cpu1"}
    assert places["function"] == set(FUNCTIONS)
    assert places["lock"] == set(LOCKS)
    assert places["quota"] == places["buffer"] == places[NOTHING] == {""}
    for one in found:
        least, most = CAUSES[one.cause].sizes["medium"]
        assert least <= one.thousandths <= most
    thieves = {one.thousandths for one in found if one.cause == "thief"}
    least, most = CAUSES["thief"].sizes["medium"]
    assert min(thieves) < least + (most - least) / 4
    assert max(thieves) > most - (most - least) / 4


def test_harder_is_smaller_with_decoys_and_nothing_more_often() -> None:
    for cause in CAUSES.values():
        sizes = [cause.sizes[level] for level in LEVELS if level in cause.sizes]
        assert sizes == sorted(sizes, reverse=True)
    of = {level: Counter(one.cause for one in all_of(level)) for level in LEVELS}
    assert len(of["easy"]) < len(of["medium"])
    assert of["easy"][NOTHING] == 0
    assert of["medium"][NOTHING] < of["hard"][NOTHING]
    assert {one.decoy > 0 for one in all_of("hard")} == {True}
    assert {one.decoy for level in ("easy", "medium") for one in all_of(level)} == {0}
    assert max(one.decoy for one in all_of("hard")) < 10  # below a percent nothing counts


@pytest.mark.parametrize(
    ("machine", "lacking"),
    [
        (Machine((3,), quota=True, job=""), {"function", "code", "lock", "hog"}),
        (Machine((0, 1), quota=False, job=""), {"quota"}),
        (Machine((0, 1), quota=True, job="no compiler"), {"function", "code", "buffer", "lock"}),
        (
            Machine((3,), quota=False, job="no compiler"),
            {"function", "code", "buffer", "lock", "hog", "quota"},
        ),
    ],
)
def test_what_a_machine_cannot_do_is_not_drawn(machine: Machine, lacking: set[str]) -> None:
    assert {cause for cause in CAUSES if impossible(cause, machine)} == lacking
    for level in LEVELS:
        able = {name for name, one in CAUSES.items() if level in one.sizes} - lacking
        assert {one.cause for one in all_of(level, machine)} == (able or {NOTHING})
    assert {one.cpu for one in all_of("hard", machine)} <= set(machine.cpus)


def test_seeds_that_need_nothing_that_is_lacking_stay_the_same() -> None:
    other = Machine((0, 1), quota=False, job="")
    for seed in SEEDS:
        here = draw(seed, "hard", WHOLE)
        assert here.cause == "quota" or draw(seed, "hard", other) == here
