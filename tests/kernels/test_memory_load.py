"""memory_load.c: what it moves is what it says, on the cores that were asked for."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from perflib.kernels import Kernel
from tests.kernels.here import CPUS, needs_two_cpus
from tests.reference import memory_load as reference

ARGUMENT, PINNING, NONE = 1 << 16, 7 << 16, 10 << 16
SMALL_PAGES = 1
HERE = -1
LIMIT_NS = 20_000_000_000
CHUNKS = 48
APART_BYTES = 21 * 64
NO_CPU = 1 << 20
KERNEL = "memory_load"


@pytest.fixture
def arena(kernel: Kernel) -> Iterator[Any]:
    made = kernel.ffi.new("load_arena *")
    place(kernel, made)
    yield made
    assert kernel.lib.load_release(made) == 0
    assert made.begin == 0


def place(kernel: Kernel, arena: Any, chunks: int = CHUNKS) -> None:
    bytes_ = chunks * reference.CHUNK_BYTES
    assert kernel.lib.load_place(bytes_, SMALL_PAGES, HERE, arena) == 0


def content(kernel: Kernel, arena: Any) -> list[np.ndarray]:
    """Copies of the three arrays."""
    made = []
    for which in range(3):
        start = arena.begin + which * (arena.array_bytes + APART_BYTES)
        where = kernel.ffi.cast("char *", start)
        made.append(np.frombuffer(kernel.ffi.buffer(where, arena.array_bytes), "f8").copy())
    return made


def begin(
    kernel: Kernel, arena: Any, kind: str = "read", cpus: list[int] = CPUS[:1], **changed: int
) -> int:
    """What the call answers; a delay, and where the first thread begins, are 0 unless given."""
    given = {"delay": 0, "first": 0, "segment": 0} | changed
    answer: int = kernel.lib.load_begin(
        arena, reference.KINDS.index(kind), *given.values(), cpus, len(cpus), LIMIT_NS
    )
    return answer


def end(kernel: Kernel, n: int = 1, windows: tuple[tuple[int, int], ...] = ()) -> tuple[Any, Any]:
    accounts = kernel.ffi.new("load_account[]", max(1, n * len(windows)))
    results = kernel.ffi.new("load_result[]", n)
    from_ns, to_ns = [low for low, _ in windows], [high for _, high in windows]
    answer = kernel.lib.load_end(from_ns, to_ns, len(windows), accounts, results, n)
    assert answer == 0, (answer >> 16, os.strerror(answer & 0xFFFF))
    return accounts, results


def times_done(chunks: int, segment: int, first: int, done: list[int]) -> np.ndarray:
    """How often each chunk was done, by threads of which each goes round in its own segment."""
    times = np.zeros(chunks, dtype=np.int64)
    for thread, count in enumerate(done):
        for place_ in range(segment):
            where = (first + thread * segment + place_) % chunks
            times[where] += count // segment + (place_ < count % segment)
    return times


@pytest.mark.arm64
@pytest.mark.parametrize("kind", reference.KINDS)
def test_each_kind_leaves_what_its_reference_says(kernel: Kernel, arena: Any, kind: str) -> None:
    for first, segment in ((0, 0), (40, 11)):
        place(kernel, arena)
        assert begin(kernel, arena, kind, first=first, segment=segment) == 0
        time.sleep(0.002)
        _, (result,) = end(kernel)
        assert result.wrong == 0
        assert result.cpu == CPUS[0]
        assert min(result.probe_before_ns, result.chain_after_ns) > 0
        assert result.chunks > 0
        times = times_done(CHUNKS, segment or CHUNKS, first, [result.chunks])
        expected = reference.left(kind, CHUNKS, times)
        for array, wanted in zip(content(kernel, arena), expected, strict=True):
            assert np.array_equal(array, wanted)


# Not on arm64: threads of an emulator may take longer to start than the kernel waits for them.
@needs_two_cpus
def test_threads_share_the_arena(kernel: Kernel, arena: Any) -> None:
    cpus = CPUS[:2]
    assert begin(kernel, arena, "update", cpus=cpus, first=7) == 0
    time.sleep(0.002)
    _, results = end(kernel, 2)
    assert [one.cpu for one in results] == cpus
    assert [one.wrong for one in results] == [0, 0]
    times = times_done(CHUNKS, CHUNKS // 2, 7, [one.chunks for one in results])
    a, _, _ = reference.left("update", CHUNKS, times)
    assert np.array_equal(content(kernel, arena)[0], a)


@pytest.mark.parametrize("kind", ["read", "update", "triad"])
def test_bytes_between_two_moments_are_those_of_the_chunks(
    kernel: Kernel, arena: Any, kind: str
) -> None:
    # The clock's own moments of begin and end are the windows' ends: all of it, in two parts.
    assert begin(kernel, arena, kind) == 0
    first_ns = time.monotonic_ns()
    time.sleep(0.003)
    second_ns = time.monotonic_ns()
    time.sleep(0.003)
    third_ns = time.monotonic_ns()
    windows = ((first_ns, second_ns), (second_ns, third_ns), (first_ns, third_ns))
    accounts, (result,) = end(kernel, 1, windows)
    halves = accounts[0].bytes + accounts[1].bytes
    assert halves == pytest.approx(accounts[2].bytes)
    moved = reference.CHUNK_BYTES * reference.ARRAYS_MOVED[kind]
    assert 0 < accounts[2].bytes <= result.chunks * moved
    assert 0 <= accounts[2].cpu_time_ns <= 1.01 * (third_ns - first_ns)


def test_what_is_wrong_is_found(kernel: Kernel, arena: Any) -> None:
    where = kernel.ffi.cast("double *", arena.begin + arena.array_bytes + APART_BYTES)
    where[5] += 1  # b of the first chunk
    for kind in ("read", "triad"):
        assert begin(kernel, arena, kind) == 0
        time.sleep(0.002)
        _, (result,) = end(kernel)
        assert result.wrong > 0, kind


@pytest.mark.arm64
def test_wrong_arguments_are_refused(kernel: Kernel, arena: Any) -> None:
    lib, ffi = kernel.lib, kernel.ffi
    empty = ffi.new("load_arena *")
    assert begin(kernel, empty) == ARGUMENT | errno.EINVAL
    assert begin(kernel, arena, delay=-1) == ARGUMENT | errno.EINVAL
    assert begin(kernel, arena, cpus=[]) == ARGUMENT | errno.EINVAL
    assert begin(kernel, arena, segment=CHUNKS + 1) == ARGUMENT | errno.ERANGE
    assert begin(kernel, arena, cpus=[NO_CPU]) == PINNING | errno.EINVAL
    assert begin(kernel, arena, cpus=[16383]) == PINNING | errno.EINVAL
    assert lib.load_place(0, SMALL_PAGES, HERE, empty) == ARGUMENT | errno.EINVAL
    assert lib.load_place(1 << 20, 4, HERE, empty) == ARGUMENT | errno.EINVAL
    assert lib.load_place(1 << 20, SMALL_PAGES, NO_CPU, empty) == PINNING | errno.EINVAL
    assert lib.load_release(ffi.NULL) == ARGUMENT | errno.EINVAL
