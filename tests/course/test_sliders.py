"""What the sliders show is what a simulation finds."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable

import pytest

from perflib.course.sliders import alias, cache, slider, tlb, waits

BASE = 0x7F0000000000


def missed(trace: Iterable[int], entries: int) -> list[bool]:
    """Which accesses miss a memory of so many entries, the least recently used replaced."""
    held: OrderedDict[int, None] = OrderedDict()
    misses = []
    for one in trace:
        misses.append(one not in held)
        held[one] = None
        held.move_to_end(one)
        if len(held) > entries:
            held.popitem(last=False)
    return misses


@pytest.mark.parametrize("pages", [8, 63, 64, 65, 80, 128, 500])
def test_a_tlb_misses_as_often_as_a_simulated_one(pages: int) -> None:
    shown = tlb(64, pages)
    laps = missed([page for _ in range(4) for page in range(pages)], 64)[-pages:]
    assert shown["misses in a ring, %"] == pytest.approx(100 * sum(laps) / pages)
    drawn = random.Random(1)
    late = missed([drawn.randrange(pages) for _ in range(40_000)], 64)[20_000:]
    assert shown["misses at random, %"] == pytest.approx(100 * sum(late) / len(late), abs=2)
    assert shown["the TLB reaches, KiB"] == 256
    assert shown["the data take, KiB"] == 4 * pages


def test_a_load_waits_for_a_store_whose_bytes_share_low_bits() -> None:
    drawn = random.Random(2)
    for _ in range(3000):
        size = drawn.choice([1, 4, 8])
        store = BASE + drawn.randrange(20_000)
        load = store + drawn.choice([drawn.randrange(-9000, 9000), drawn.randrange(-9, 9), 4096])
        stored, loaded = ({one + i for i in range(size)} for one in (store, load))
        low = {one % 4096 for one in stored} & {one % 4096 for one in loaded}
        expected = "true dependence" if stored & loaded else "false dependence" if low else "no"
        assert waits(store, load, size) == expected


@pytest.mark.parametrize("offset", [0, 4, 6, 60, 124, 128, 2048, 4092])
@pytest.mark.parametrize("item", [4, 8])
def test_the_step_is_the_first_whose_load_meets_the_store(offset: int, item: int) -> None:
    shown = alias(offset, 3, item)
    out = BASE + 3 * 4096 + offset
    steps = [i for i in range(1025) if waits(out, BASE + i * item, item) == "false dependence"]
    step = shown["the store of step 0 meets the load of step"]
    assert step in steps
    assert not [i for i in steps if offset <= i * item < step * item]
    assert shown["that is a"] == "false dependence"
    assert shown["soon enough to cost time"] == ("yes" if offset < 128 else "no")


@pytest.mark.parametrize("stride", [8, 64, 100, 512, 4096])
@pytest.mark.parametrize("array", [8, 32, 40, 64])
@pytest.mark.parametrize("ways", [1, 8])
def test_a_cache_misses_as_often_as_a_simulated_one(stride: int, array: int, ways: int) -> None:
    shown = cache(32, stride, array, ways)
    sets = 32 * 1024 // (64 * ways)
    loads = [at // 64 for at in range(0, array * 1024, stride)]
    laps = [[line for line in loads if line % sets == one] for one in range(sets)]
    misses = sum(sum(missed(3 * lap, ways)[2 * len(lap) :]) for lap in laps)
    assert shown["loads that miss, %"] == pytest.approx(100 * misses / len(loads), abs=0.05)
    assert shown["lines touched"] == len(set(loads))
    assert shown["sets used"] == f"{sum(map(bool, laps))} of {sets}"


@pytest.mark.parametrize("name", ["tlb", "alias", "cache"])
def test_every_choice_of_every_slider_shows_something(name: str) -> None:
    made = slider(name)
    tables = {made.shown.value}
    for control in made.controls.values():
        first = control.value
        for value in control.options:
            control.value = value
            assert all(str(one) in made.shown.value for one in made.state.values())
            tables.add(made.shown.value)
        control.value = first
    assert len(tables) > 1
    assert repr(made).startswith(f"{name} slider (")
