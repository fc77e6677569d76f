"""allocator_pairs.c: pairs where malloc puts them, places as asked, results against a reference."""

from __future__ import annotations

import errno
import subprocess
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from perflib import kernels
from perflib.kernels import Kernel
from tests.kernels.brackets import check_brackets, check_shared
from tests.kernels.calls import room
from tests.kernels.here import launched
from tests.reference import alias_offsets as reference

CONVOLUTION, COPY = 0, 1
GIVEN, SAME, FAR = 0, 1, 2


@pytest.fixture(params=["O0", "O2", "O3"])
def kernel(request: pytest.FixtureRequest, processor: str) -> Any:  # noqa: ARG001
    loaded = kernels.load("allocator_pairs", variant=request.param)
    yield loaded
    loaded.lib.allocator_release()


def timed(kernel: Kernel, function: int, n: int, places: list[int]) -> NDArray[Any]:
    samples, out = room(kernel, "allocator_sample", len(places))
    assert kernel.lib.allocator_time(function, n, 1000, places, len(places), out) == 0
    return samples


def program(*commands: str) -> subprocess.CompletedProcess[str]:
    path = kernels.build("allocator_pairs", variant="O2", executable=True).library
    words = "".join(command + "\n" for command in commands)
    return launched(path, input=words)


@pytest.mark.arm64
def test_pairs_that_stay_do_not_overlap_and_are_freed_once(kernel: Kernel) -> None:
    size = 5000
    out = kernel.ffi.new("allocator_pair[20]")
    assert kernel.lib.allocator_pairs(size, 20, True, out) == 0
    found = sorted(address for one in out for address in (one.first, one.second))
    assert np.diff(found).min() >= size
    assert all(address % 16 == 0 for address in found)
    assert kernel.lib.allocator_release() == 40
    assert kernel.lib.allocator_release() == 0


@pytest.mark.arm64
@pytest.mark.parametrize("n", [16, 17, 1000, 70_000])
def test_every_place_is_where_it_should_be_and_gives_the_references_result(
    kernel: Kernel, n: int
) -> None:
    for function, expected in (
        (CONVOLUTION, reference.convolution(n)),
        (COPY, reference.copy(n)),
    ):
        samples = timed(kernel, function, n, [GIVEN, SAME, FAR, FAR, GIVEN])
        assert set(samples["checksum"].tolist()) == {reference.checksum(expected)}
        (first,) = set(samples["first"].tolist())
        given, same, far, again, _ = (second - first for second in samples["second"].tolist())
        assert given % 4096 == same % 4096
        assert given != same
        assert far % 4096 == 2048 + given % 64
        assert again == far
        check_brackets(samples["timed"])
        (calls,) = set(samples["calls"].tolist())
        assert calls >= 1
        if calls > 1:
            check_shared(samples["timed"])
        assert (samples["cpu"] >= -1).all()


@pytest.mark.parametrize(
    ("words", "error"),
    [((0, 1, 1), errno.EINVAL), ((64, 0, 1), errno.EINVAL), ((64, 1 << 15, 1), errno.ERANGE)],
)
def test_wrong_pairs_are_refused(words: tuple[int, ...], error: int) -> None:
    kernel = kernels.load("allocator_pairs")
    out = kernel.ffi.new("allocator_pair[1]")
    assert kernel.lib.allocator_pairs(*words, out) == (1 << 16) + error


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((2, 100, 1, [0], 1), errno.EINVAL),
        ((-1, 100, 1, [0], 1), errno.EINVAL),
        ((0, 100, 0, [0], 1), errno.EINVAL),
        ((0, 100, 1, [3], 1), errno.EINVAL),
        ((0, 100, 1, [-1], 1), errno.EINVAL),
        ((0, 100, 1, [0], 0), errno.EINVAL),
        ((0, 15, 1, [0], 1), errno.ERANGE),
        ((0, 1 << 31, 1, [0], 1), errno.ERANGE),
    ],
)
def test_wrong_times_are_refused(words: tuple[Any, ...], error: int) -> None:
    kernel = kernels.load("allocator_pairs")
    out = kernel.ffi.new("allocator_sample[1]")
    assert kernel.lib.allocator_time(*words, out) == (1 << 16) + error


# --- as a program --------------------------------------------------------------------------------


@pytest.mark.arm64
def test_as_a_program_it_answers_every_command() -> None:
    said = program("new 64 2", "time 0 100 1000 012", "release", "again 5120 3")
    assert (said.returncode, said.stderr) == (0, "")
    lines = [line.split() for line in said.stdout.splitlines()]
    assert len(lines) == 2 + 2 + 3 + 1 + 3
    assert lines[7] == ["6"]
    assert [len(line) for line in lines[2:4]] == [2, 2]
    given, same, far = (list(map(int, line)) for line in lines[4:7])
    assert {one[4] for one in (given, same, far)} == {
        reference.checksum(reference.convolution(100))
    }
    record = kernels.record("allocator_pairs", "bracket")
    brackets = np.array([tuple(one[5:]) for one in (given, same, far)], record)
    check_brackets(brackets)
    if given[2] > 1:
        check_shared(brackets)
    assert (same[1] - given[1]) % 4096 == 0


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("nonsense", "nonsense: it is no command"),
        ("new 64", "it is no command"),
        ("new 0 1", "its arguments: Invalid argument"),
        ("again 64 5000", "its arguments: Numerical result out of range"),
        ("time 0 100 1000 9", "its arguments: Invalid argument"),
        (f"new {1 << 62} 1", "its memory: Cannot allocate memory"),
    ],
)
def test_as_a_program_it_refuses_in_words(command: str, sentence: str) -> None:
    said = program(command)
    assert said.returncode == 1
    assert sentence in said.stderr
