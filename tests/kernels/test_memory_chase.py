"""memory_chase.c: its orders are one cycle each, on the pages and the cores that were asked for."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perflib.kernels import Kernel
from perflib.measure.pages import smaps
from perflib.measure.pages.backings import why_not
from perflib.measure.pages.kinds import BACKINGS
from tests.kernels.brackets import check_since
from tests.kernels.calls import room, values
from tests.kernels.here import CPUS, needs_two_cpus
from tests.reference import memory_chase as reference

# They change, or depend on, the machine's huge pages: one after the other.
pytestmark = pytest.mark.xdist_group("huge pages")

ORDERS = {"random": 0, "page": 1, "sequential": 2, "lmbench": 3, "window": 4}  # of all lines
SPREAD = 5
ARGUMENT, MEMORY, PINNING = 1 << 16, 2 << 16, 7 << 16
SMALL_PAGES = BACKINGS["4k"]
LINE, PAGE, HUGE = 64, 4096, 2 << 20
HERE = -1
KERNEL = "memory_chase"


@pytest.fixture(scope="module")
def array(kernel: Kernel) -> Iterator[Any]:
    """An array that is placed again and again."""
    made = kernel.ffi.new("chase_array *")
    yield made
    assert kernel.lib.chase_release(made) == 0


def lay(
    kernel: Kernel,
    array: Any,
    order: str = "random",
    lines: int = 1024,
    line_bytes: int = LINE,
    backing: int = SMALL_PAGES,
    seed: int = 1,
    cpu: int = HERE,
    span: int = 0,
) -> None:
    answer = kernel.lib.chase_lay(
        ORDERS[order], lines * line_bytes, span, line_bytes, backing, seed, cpu, array
    )
    assert answer == 0, (answer >> 16, os.strerror(answer & 0xFFFF))


def run(
    kernel: Kernel, array: Any, loads: int, *, warm: int = 0, repeats: int = 1, cpu: int = HERE
) -> list[SimpleNamespace]:
    out = kernel.ffi.new("chase_sample[]", repeats)
    assert kernel.lib.chase_run(array, cpu, warm, loads, repeats, out) == 0
    return [values(kernel.ffi, one) for one in out]


def line_offsets(kernel: Kernel, array: Any, apart: int = 0) -> list[int]:
    """Where the lines lie that follow each other in memory, until one comes again."""
    words = memoryview(
        kernel.ffi.buffer(kernel.ffi.cast("char *", array.begin), array.end - array.begin)
    ).cast("Q")
    found, seen, at = [], set(), array.at - array.begin
    while at not in seen:
        seen.add(at)
        assert at % (apart or array.line_bytes) == 0
        found.append(at)
        at = words[at // 8] - array.begin
        assert 0 <= at < array.end - array.begin
    assert at == found[0], "it does not come back to where it began"
    return found


def line_numbers(kernel: Kernel, array: Any) -> list[int]:
    """The numbers of these lines, where they lie side by side."""
    return [at // array.line_bytes for at in line_offsets(kernel, array)]


def mapped_and_resident() -> tuple[int, ...]:
    words = Path("/proc/self/statm").read_text().split()
    return int(words[0]) * PAGE, int(words[1]) * PAGE


# --- the orders --------------------------------------------------------------------------------


@pytest.mark.arm64
@settings(max_examples=150)
@given(
    order=st.sampled_from([*ORDERS]),
    lines=st.integers(1, 3000),
    line_bytes=st.sampled_from([8, 16, 32, 64, 128, 256, 1024, 4096]),
    seed=st.integers(0, 2**64 - 1),
    scattered=st.integers(0, HUGE),
)
@example(order="random", lines=1, line_bytes=64, seed=0, scattered=0)
@example(order="page", lines=2**15, line_bytes=64, seed=2**64 - 1, scattered=1)
@example(order="window", lines=2**14 + 3, line_bytes=64, seed=1, scattered=0)
@example(order="lmbench", lines=32, line_bytes=64, seed=1, scattered=0)  # 2 KiB
@example(order="lmbench", lines=2**15, line_bytes=64, seed=1, scattered=0)
@example(order="lmbench", lines=2**13, line_bytes=8, seed=1, scattered=HUGE)
@example(order="lmbench", lines=97, line_bytes=64, seed=1, scattered=PAGE)
@example(order="sequential", lines=2**15, line_bytes=128, seed=1, scattered=0)
def test_every_order_is_the_one_cycle_of_the_reference(
    kernel: Kernel,
    array: Any,
    order: str,
    lines: int,
    line_bytes: int,
    seed: int,
    scattered: int,
) -> None:
    span = lines * line_bytes + scattered if scattered else 0
    lay(kernel, array, order, lines, line_bytes, seed=seed, span=span)
    assert (array.lines, array.line_bytes) == (lines, line_bytes)
    found = line_offsets(kernel, array)
    assert found == reference.visits(order, lines, line_bytes, seed, span)


@pytest.mark.arm64
@settings(max_examples=60)
@given(
    pages=st.integers(1, 700),
    page_bytes=st.sampled_from([64, 128, PAGE, 16 * PAGE]),
    seed=st.integers(0, 2**64 - 1),
)
@example(pages=40, page_bytes=HUGE, seed=1)
@example(pages=6144, page_bytes=PAGE, seed=1)
def test_spread_lines_are_one_a_page_and_use_the_sets_of_a_cache_alike(
    kernel: Kernel, array: Any, pages: int, page_bytes: int, seed: int
) -> None:
    bytes_ = pages * page_bytes
    answer = kernel.lib.chase_lay(SPREAD, bytes_, 0, page_bytes, SMALL_PAGES, seed, HERE, array)
    assert answer == 0
    found = line_offsets(kernel, array, apart=LINE)
    assert found == reference.visits("spread", pages, page_bytes, seed)
    assert sorted(at // page_bytes for at in found) == list(range(pages))
    places = Counter(at // LINE % (PAGE // LINE) for at in found if page_bytes >= PAGE)
    assert max(places.values(), default=0) - min(places.values(), default=0) <= 1
    (one,) = run(kernel, array, 3 * pages)
    assert one.reached_bytes == found[0], "whole laps end where they began"


@pytest.mark.arm64
def test_pages_of_an_array_lie_scattered_over_a_span(kernel: Kernel, array: Any) -> None:
    lay(kernel, array, "sequential", 64 * 10, span=8 * HUGE)
    assert array.end - array.begin == 8 * HUGE
    pages = [at // PAGE for at in line_offsets(kernel, array)]
    assert len(set(pages)) == 10
    assert max(pages) - min(pages) > 1024
    assert [at % PAGE for at in line_offsets(kernel, array)] == [LINE * k for k in range(64)] * 10


@pytest.mark.parametrize(("order", "block"), [("page", 64), ("window", 64 * 32)])
@pytest.mark.parametrize("rest", [0, 17])
def test_page_and_window_order_take_one_block_after_the_other(
    kernel: Kernel, array: Any, order: str, block: int, rest: int
) -> None:
    lay(kernel, array, order, 20 * block + rest)
    found = line_numbers(kernel, array)
    blocks = [line // block for line in found]
    changes = sum(before != after for before, after in itertools.pairwise(blocks))
    assert changes == len(set(blocks)) - 1
    assert blocks != sorted(blocks)
    inside = [line for line in found if line < block]
    assert inside != sorted(inside)


def test_lmbench_order_takes_another_page_and_another_place_each_time(
    kernel: Kernel, array: Any
) -> None:
    lay(kernel, array, "lmbench", 64 * 100)
    found = line_numbers(kernel, array)
    for lap in range(64):
        pages = [line // 64 for line in found[100 * lap : 100 * lap + 100]]
        assert sorted(pages) == list(range(100))
        assert pages == [line // 64 for line in found[:100]]
    assert sorted(line % 64 for line in found[:64]) == list(range(64))


# --- the chase ---------------------------------------------------------------------------------


@pytest.mark.arm64
@settings(max_examples=60)
@given(
    order=st.sampled_from([*ORDERS]),
    lines=st.integers(1, 500),
    warm=st.integers(0, 700),
    loads=st.integers(1, 700),
    repeats=st.integers(1, 4),
)
@example(order="random", lines=1, warm=0, loads=64, repeats=1)
@example(order="random", lines=500, warm=63, loads=65, repeats=4)
def test_each_repeat_goes_on_where_the_last_one_ended(
    kernel: Kernel, array: Any, order: str, lines: int, warm: int, loads: int, repeats: int
) -> None:
    lay(kernel, array, order, lines, seed=7)
    visits = reference.visits(order, lines, LINE, 7)
    gone = 0
    for _ in range(2):  # the second call, too
        gone += warm
        for sample in run(kernel, array, loads, warm=warm, repeats=repeats):
            gone += loads
            assert sample.loads == loads
            assert sample.reached_bytes == visits[gone % lines]


@pytest.mark.arm64
def test_slice_says_when_where_and_how_fast_between_two_probes(kernel: Kernel, array: Any) -> None:
    lay(kernel, array)
    samples, out = room(kernel, "chase_sample", 2)
    before_ns = time.monotonic_ns()
    assert kernel.lib.chase_run(array, HERE, 100, 5000, 2, out) == 0
    check_since(before_ns, samples["sample"])
    assert (samples["sample"]["cpu_time_ns"] > 0).all()
    assert (samples["involuntary_switches"] >= 0).all()
    assert {*samples["cpu"]} <= {-1, *CPUS}


# --- cores -------------------------------------------------------------------------------------


@pytest.mark.arm64
def test_cores_asked_for_are_used_and_the_thread_goes_back(kernel: Kernel, array: Any) -> None:
    before = os.sched_getaffinity(0)
    for placed_on in CPUS:
        lay(kernel, array, cpu=placed_on)
        assert array.cpu == placed_on
        visits = line_numbers(kernel, array)
        for loaded_on in CPUS:
            position = visits.index((array.at - array.begin) // LINE)
            (sample,) = run(kernel, array, 1000, cpu=loaded_on)
            assert sample.cpu == loaded_on
            assert sample.reached_bytes == LINE * visits[(position + 1000) % len(visits)]
    assert os.sched_getaffinity(0) == before


@needs_two_cpus
def test_core_taken_away_during_the_run_is_seen(kernel: Kernel, array: Any) -> None:
    """Another thread moves the one that measures: the kernel does the same to an offline core."""
    first, second = CPUS[:2]
    lay(kernel, array, cpu=first)
    thread = threading.get_native_id()
    before, ended = os.sched_getaffinity(0), threading.Event()

    def take_away() -> None:
        while not ended.wait(0.001):
            if os.sched_getaffinity(thread) == {first}:
                os.sched_setaffinity(thread, {second})

    taker = threading.Thread(target=take_away)
    taker.start()
    try:
        cpus: list[int] = []
        while second not in cpus:  # until a repeat began after it
            cpus = [sample.cpu for sample in run(kernel, array, 2000, repeats=500, cpu=first)]
    finally:
        ended.set()
        taker.join()
        os.sched_setaffinity(0, before)
    assert set(cpus) <= {first, -1, second}
    assert cpus == sorted(cpus, key=[first, -1, second].index)


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.arm64
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"order": -1}, errno.EINVAL),
        ({"order": 6}, errno.EINVAL),
        ({"order": SPREAD, "line_bytes": 32}, errno.EINVAL),
        ({"order": SPREAD, "line_bytes": 3 * PAGE, "bytes": 3 * PAGE}, errno.EINVAL),
        ({"order": SPREAD, "line_bytes": 2 * HUGE, "bytes": 2 * HUGE}, errno.EINVAL),
        ({"order": SPREAD, "span": 2048}, errno.EINVAL),
        ({"bytes": 0}, errno.EINVAL),
        ({"bytes": 32}, errno.EINVAL),
        ({"bytes": 100}, errno.EINVAL),
        ({"bytes": 2**64 - 64}, errno.ERANGE),
        ({"bytes": 2**31 * 64}, errno.ERANGE),
        ({"span": 1023}, errno.EINVAL),
        ({"span": 2**64 - 1}, errno.ERANGE),
        ({"line_bytes": 0}, errno.EINVAL),
        ({"line_bytes": 4}, errno.EINVAL),
        ({"line_bytes": 96, "bytes": 960}, errno.EINVAL),
        ({"line_bytes": 8192, "bytes": 8192}, errno.EINVAL),
        ({"backing": 0}, errno.EINVAL),
        ({"backing": 6}, errno.EINVAL),
        ({"cpu": -2}, errno.EINVAL),
    ],
)
def test_wrong_arguments_are_refused_and_what_was_placed_stays(
    kernel: Kernel, array: Any, change: dict[str, int], error: int
) -> None:
    lay(kernel, array, "random", 40)
    visits = line_numbers(kernel, array)
    right = {"order": 0, "bytes": 1024, "span": 0, "line_bytes": LINE, "backing": 1}
    changed = right | {"seed": 1, "cpu": -1} | change
    assert kernel.lib.chase_lay(*changed.values(), array) == ARGUMENT + error
    assert line_numbers(kernel, array) == visits


@pytest.mark.arm64
def test_bad_arguments_of_the_others_are_refused(kernel: Kernel, array: Any) -> None:
    lay(kernel, array)
    null, out = kernel.ffi.NULL, kernel.ffi.new("chase_sample *")
    refused = ARGUMENT + errno.EINVAL
    assert kernel.lib.chase_lay(0, 1024, 0, LINE, SMALL_PAGES, 1, HERE, null) == refused
    assert kernel.lib.chase_run(null, HERE, 0, 1, 1, out) == refused
    assert kernel.lib.chase_run(array, -2, 0, 1, 1, out) == refused
    assert kernel.lib.chase_run(array, HERE, -1, 1, 1, out) == refused
    assert kernel.lib.chase_run(array, HERE, 0, 0, 1, out) == refused
    assert kernel.lib.chase_run(array, HERE, 0, 1, 0, out) == refused
    assert kernel.lib.chase_run(array, HERE, 0, 1, 1, null) == refused
    assert kernel.lib.chase_release(null) == refused
    assert kernel.lib.chase_page_reach(0, 1, null, null) == refused


def test_memory_that_there_is_not_is_reported(kernel: Kernel) -> None:
    empty = kernel.ffi.new("chase_array *")
    most, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped_and_resident()[0] + (1 << 30), hard))
    try:
        answer = kernel.lib.chase_lay(2, 4 << 30, 0, PAGE, SMALL_PAGES, 1, HERE, empty)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    assert answer == MEMORY + errno.ENOMEM
    assert empty.begin == 0


# --- pages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [1, 70_000])
@pytest.mark.parametrize("backing", [name for name in BACKINGS if name != "loaded"])
def test_lines_lie_on_the_pages_asked_for(
    kernel: Kernel, array: Any, backing: str, lines: int
) -> None:
    mapped = -(-lines * LINE // HUGE) * HUGE
    if reason := why_not(backing, pages_needed=mapped // HUGE, may_reserve=False):
        pytest.skip(reason)
    lay(kernel, array, "random", lines, backing=BACKINGS[backing])
    assert (array.begin % HUGE, array.end - array.begin) == (0, mapped)
    found = smaps.backing_of(smaps.read(os.getpid()), array.begin, array.end)
    assert smaps.violated(backing, found) == ""
    assert found.size_bytes == found.resident_bytes == mapped
    content = kernel.ffi.buffer(kernel.ffi.cast("char *", array.begin), mapped)[:]
    assert all(any(content[page : page + PAGE]) for page in range(0, mapped, PAGE))


def test_placing_again_and_again_leaks_nothing(kernel: Kernel) -> None:
    array = kernel.ffi.new("chase_array *")
    lay(kernel, array, lines=HUGE // LINE)
    before = mapped_and_resident()
    for seed in range(20):
        lay(kernel, array, lines=HUGE // LINE, seed=seed)
        kernel.lib.chase_lay(0, HUGE, 0, LINE, BACKINGS["hugetlb"], 1, HERE, array)
    lay(kernel, array, lines=HUGE // LINE)
    for now, then in zip(mapped_and_resident(), before, strict=True):
        assert now - then < 2 * HUGE
    begin, end = array.begin, array.end
    assert kernel.lib.chase_release(array) == 0
    assert (array.begin, array.end, array.lines) == (0, 0, 0)
    assert smaps.backing_of(smaps.read(os.getpid()), begin, end).mapped_bytes == 0
