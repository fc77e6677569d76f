"""erasure_coding.c: every loss that can be made good is, by both methods, as the reference says."""

from __future__ import annotations

import errno
import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from perflib import kernels
from perflib.kernels import Kernel
from perflib.model.errors import MeasurementError
from tests.kernels.brackets import check_since
from tests.kernels.calls import room
from tests.reference import erasure_coding as reference

DATA, PARITY = 10, 4
TABLES, SIMD = 0, 1
PAGE = 4096

Blocks = NDArray[np.uint8]
KERNEL = "erasure_coding"


@pytest.fixture(scope="module", params=[TABLES, SIMD], ids=["tables", "simd"])
def method(kernel: Kernel, request: pytest.FixtureRequest) -> int:
    chosen = int(request.param)
    if kernel.lib.erasure_open(chosen, 1, 1, PAGE) == errno.ENOTSUP:
        pytest.skip("this processor has no AVX2")
    assert kernel.lib.erasure_close() == 0
    return chosen


def content(blocks: int, size: int, seed: int = 1) -> Blocks:
    return np.random.default_rng(seed).integers(0, 256, (blocks, size), dtype=np.uint8)


def cauchy(kernel: Kernel, data: int, parity: int) -> Any:
    matrix = kernel.ffi.new("unsigned char[]", data * parity)
    assert kernel.lib.rs_cauchy(data, parity, matrix) == 0
    return matrix


def pointers(kernel: Kernel, blocks: Blocks) -> Any:
    rows = [kernel.ffi.from_buffer("unsigned char[]", block) for block in blocks]
    return kernel.ffi.new("unsigned char *[]", rows)


def encode(kernel: Kernel, method: int, data: Blocks, parity: int) -> Blocks:
    blocks = np.concatenate([data, np.full((parity, data.shape[1]), 0xEE, dtype=np.uint8)])
    matrix = cauchy(kernel, len(data), parity)
    answer = kernel.lib.rs_encode(
        method, len(data), parity, matrix, blocks.shape[1], pointers(kernel, blocks)
    )
    assert answer == 0
    return blocks


def decode(
    kernel: Kernel, method: int, blocks: Blocks, parity: int, lost: Sequence[int]
) -> tuple[int, Blocks]:
    """The answer, and what became of the blocks, the lost ones of which were overwritten."""
    damaged = blocks.copy()
    damaged[list(lost)] ^= 0x5A
    data = len(blocks) - parity
    numbers = kernel.ffi.new("int32_t[]", list(lost))
    answer = kernel.lib.rs_decode(
        method, data, parity, cauchy(kernel, data, parity), blocks.shape[1],
        pointers(kernel, damaged), numbers, len(lost),
    )  # fmt: skip
    return answer, damaged


# --- encoding and decoding -----------------------------------------------------------------------


@pytest.mark.arm64
@pytest.mark.parametrize("count", range(PARITY + 1))
def test_every_loss_of_up_to_four_of_fourteen_blocks_is_made_good(
    kernel: Kernel, method: int, count: int
) -> None:
    whole = encode(kernel, method, content(DATA, 75), PARITY)
    for lost in itertools.combinations(range(DATA + PARITY), count):
        answer, found = decode(kernel, method, whole, PARITY, lost)
        assert answer == 0
        assert (found == whole).all(), lost


@settings(max_examples=60)
@given(
    data=st.integers(1, 40),
    parity=st.integers(1, 12),
    size=st.integers(1, 300),
    seed=st.integers(0, 2**32),
)
@example(data=1, parity=1, size=1, seed=0)
@example(data=1, parity=12, size=64, seed=1)
@example(data=250, parity=6, size=70, seed=2)
@example(data=128, parity=128, size=65, seed=3)
def test_any_code_bears_as_many_losses_as_it_has_parity(
    kernel: Kernel, method: int, data: int, parity: int, size: int, seed: int
) -> None:
    draw = random.Random(seed)
    whole = encode(kernel, method, content(data, size, seed), parity)
    assert (whole == reference.encode(reference.cauchy(data, parity), whole[:data])).all()
    lost = sorted(draw.sample(range(data + parity), draw.randint(0, parity)))
    answer, found = decode(kernel, method, whole, parity, lost)
    assert answer == 0
    assert (found == whole).all()


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [range(5), (0, 3, 9, 10, 13), range(14)])
def test_too_many_losses_are_refused_and_nothing_is_touched(
    kernel: Kernel, method: int, lost: Sequence[int]
) -> None:
    whole = encode(kernel, method, content(DATA, 64), PARITY)
    answer, found = decode(kernel, method, whole, PARITY, lost)
    assert answer == errno.ERANGE
    assert ((found ^ whole)[list(lost)] == 0x5A).all()


@pytest.mark.arm64
def test_a_singular_matrix_is_reported(kernel: Kernel, method: int) -> None:
    """Two equal rows of parity cannot make up for two blocks of data."""
    blocks = content(4, 10)
    matrix = kernel.ffi.new("unsigned char[]", [1, 2, 1, 2])
    lost = kernel.ffi.new("int32_t[]", [0, 1])
    answer = kernel.lib.rs_decode(method, 2, 2, matrix, 10, pointers(kernel, blocks), lost, 2)
    assert answer == errno.EDOM


@pytest.mark.parametrize("lost", [[-1], [14], [3, 3], [5, 2], [2**31 - 1]])
def test_losses_of_no_such_blocks_are_refused(kernel: Kernel, lost: list[int]) -> None:
    whole = encode(kernel, TABLES, content(DATA, 8), PARITY)
    numbers = kernel.ffi.new("int32_t[]", lost)
    matrix = cauchy(kernel, DATA, PARITY)
    answer = kernel.lib.rs_decode(
        TABLES, DATA, PARITY, matrix, 8, pointers(kernel, whole), numbers, len(lost)
    )
    assert answer == errno.EINVAL


@pytest.mark.arm64
@pytest.mark.parametrize(
    "change",
    [
        {"method": -1}, {"method": 2}, {"data": 0}, {"data": -1}, {"parity": 0}, {"parity": 247},
        {"data": 2**31 - 1, "parity": 2**31 - 1}, {"bytes": 0}, {"bytes": 2**63},
        {"matrix": None}, {"blocks": None},
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(kernel: Kernel, change: dict[str, Any]) -> None:
    null = kernel.ffi.NULL
    held = content(DATA + PARITY, 8)
    right: dict[str, Any] = {
        "method": TABLES, "data": DATA, "parity": PARITY, "matrix": cauchy(kernel, DATA, PARITY),
        "bytes": 8, "blocks": pointers(kernel, held),
    }  # fmt: skip
    changed = {name: null if value is None else value for name, value in change.items()}
    assert kernel.lib.rs_encode(*{**right, **changed}.values()) == errno.EINVAL
    answer = kernel.lib.rs_decode(*{**right, **changed}.values(), null, 0)
    assert answer == errno.EINVAL


# --- blocks for a measurement, the same in every kernel ------------------------------------------

# Each with the header that it needs, and the package that has it.
KERNELS = {
    "erasure_coding": ("", ""),
    "erasure_isal": ("isa-l/erasure_code.h", "libisal-dev"),
    "erasure_jerasure": ("cauchy.h", "libjerasure-dev"),
}


@pytest.fixture(scope="module", params=[(name, method) for name in KERNELS for method in (0, 1)])
def opened(request: pytest.FixtureRequest) -> tuple[Kernel, int]:
    """A kernel and one of its methods; skipped where its library or the instructions are absent."""
    name, method = request.param
    try:
        kernel = kernels.load(name)
    except MeasurementError as error:
        header, package = KERNELS[name]
        if header and header in str(error):
            pytest.skip(f"no {header}: apt-get install {package}")
        raise
    if kernel.lib.erasure_open(method, DATA, PARITY, PAGE) == errno.ENOTSUP:
        pytest.skip("this processor has no AVX2")
    return kernel, int(method)


@pytest.fixture
def place(opened: tuple[Kernel, int]) -> Iterator[Callable[..., tuple[Kernel, list[int]]]]:
    """Open and lay blocks; closed at the end."""
    kernel, method = opened

    def lay(
        data: int = DATA, parity: int = PARITY, size: int = PAGE, seed: int = 3, step: int = 0
    ) -> tuple[Kernel, list[int]]:
        assert kernel.lib.erasure_open(method, data, parity, size) == 0
        addresses = kernel.ffi.new("uint64_t[]", data + parity)
        offsets = [step * i for i in range(data + parity)]
        assert kernel.lib.erasure_lay(offsets, seed, addresses) == 0
        return kernel, list(addresses)

    yield lay
    assert kernel.lib.erasure_close() == 0


def encoded(
    kernel: Kernel, repeats: int = 1, slice_bytes: int = 1, *, warm: int = 0
) -> tuple[Any, NDArray[Any]]:
    """The sample, and room for so many slices, of which those that there were are filled."""
    out = kernel.ffi.new("erasure_sample *")
    slices, noted = room(kernel, "erasure_slice", 1000)
    assert kernel.lib.erasure_encode(warm, repeats, slice_bytes, out, noted, len(slices)) == 0
    return out, slices


def sample(kernel: Kernel) -> Any:
    """Encoded in the smallest slices that the method takes."""
    return encoded(kernel)[0]


def matrix_of(kernel: Kernel, data: int, parity: int) -> list[list[int]] | None:
    out = kernel.ffi.new("unsigned char[]", data * parity)
    answer = kernel.lib.erasure_matrix(out)
    if answer == errno.ENOTSUP:
        return None
    assert answer == 0
    return np.array(list(out)).reshape(parity, data).tolist()


def in_memory(kernel: Kernel, addresses: list[int], size: int) -> Blocks:
    raw = [kernel.ffi.buffer(kernel.ffi.cast("char *", at), size)[:] for at in addresses]
    return np.array([np.frombuffer(block, dtype=np.uint8) for block in raw])


Place = Callable[..., tuple[Kernel, list[int]]]


@pytest.mark.parametrize("step", [0, 64, 272, 1024])
def test_blocks_begin_where_they_should_and_are_filled_and_coded(place: Place, step: int) -> None:
    kernel, addresses = place(size=2 * PAGE, step=step)
    assert [at % PAGE for at in addresses] == [step * i % PAGE for i in range(14)]
    found = sample(kernel)
    blocks = in_memory(kernel, addresses, 2 * PAGE)
    for b in range(DATA):
        assert (blocks[b] == reference.filled(3, b, 2 * PAGE)).all()
    sums = kernel.ffi.new("uint64_t[14]")
    assert kernel.lib.erasure_checksums(sums) == 0
    assert list(sums) == [reference.checksum(block) for block in blocks]
    assert found.parity_checksum == reference.parity_checksum(blocks[DATA:])
    matrix = matrix_of(kernel, DATA, PARITY)
    if matrix is not None:
        assert (reference.encode(matrix, blocks[:DATA]) == blocks).all()


@pytest.mark.parametrize(("data", "parity"), [(10, 4), (1, 1), (3, 2), (17, 3), (4, 9)])
def test_what_was_lost_is_decoded(place: Place, data: int, parity: int) -> None:
    kernel, _ = place(data, parity, step=48)
    sample(kernel)
    before, after = (kernel.ffi.new("uint64_t[]", data + parity) for _ in range(2))
    assert kernel.lib.erasure_checksums(before) == 0
    draw = random.Random(data)
    for _ in range(10):
        lost = sorted(draw.sample(range(data + parity), parity))
        assert kernel.lib.erasure_decode(lost, parity) == 0
        assert kernel.lib.erasure_checksums(after) == 0
        assert list(after) == list(before), lost
    too_many = list(range(min(data + parity, parity + 1)))
    if len(too_many) > parity:
        assert kernel.lib.erasure_decode(too_many, parity + 1) == errno.ERANGE
        assert kernel.lib.erasure_checksums(after) == 0
        assert list(after) == list(before), "refused before anything is overwritten"


def test_our_matrix_is_isals_and_jerasures_is_another(
    place: Place, opened: tuple[Kernel, int]
) -> None:
    kernel, _ = place()
    name, found = opened[0].build.name, matrix_of(kernel, DATA, PARITY)
    if name == "erasure_jerasure":
        assert found is None or (found[0] == [1] * DATA and [row[0] for row in found] == [1] * 4)
    else:
        assert found == reference.cauchy(DATA, PARITY)


def test_sample_says_when_where_and_how_much(place: Place) -> None:
    kernel, _ = place(size=4 * PAGE)
    before_ns = time.monotonic_ns()
    found, slices = encoded(kernel, repeats=3, warm=1)
    check_since(before_ns, slices["timed"][: found.slices])
    assert slices["data_bytes"].sum() == 3 * DATA * 4 * PAGE
    assert found.cpu >= -1
    assert found.involuntary_switches >= 0
    assert found.parity_checksum == sample(kernel).parity_checksum


@pytest.mark.parametrize("slice_bytes", [1, PAGE, PAGE + 1, 3 * PAGE, 5 * PAGE, 2**64 - 1])
def test_slices_are_all_of_the_blocks_and_nothing_more(
    place: Place, opened: tuple[Kernel, int], slice_bytes: int
) -> None:
    size = 5 * PAGE
    kernel, addresses = place(size=size, step=64)
    found, slices = encoded(kernel, 2, slice_bytes)
    sliced = in_memory(kernel, addresses, size)
    each = slices["data_bytes"][: found.slices].reshape(2, -1)
    assert (each.sum(axis=1) == DATA * size).all()
    assert (each[0] == each[1]).all()
    assert (each[0, :-1] == each[0, 0]).all(), "all but the last are of one size"
    assert each[0, 0] >= each[0, -1] > 0
    assert each[0, 0] >= DATA * min(slice_bytes, size)
    assert not slices[found.slices :]["data_bytes"].any()
    if opened[0].build.name != "erasure_jerasure":
        assert each.shape[1] == -(-size // (-(-min(slice_bytes, size) // PAGE) * PAGE))

    place(size=size, step=64)
    whole, one = encoded(kernel, 1, size)
    assert (whole.slices, one["data_bytes"].sum()) == (1, DATA * size)
    assert found.parity_checksum == whole.parity_checksum != 0
    assert found.parity_checksum == reference.parity_checksum(sliced[DATA:])


def test_bad_arguments_of_the_measurement_are_refused(
    place: Place, opened: tuple[Kernel, int]
) -> None:
    kernel, method = opened
    lib, null = kernel.lib, kernel.ffi.NULL
    for wrong in ((9, 10, 4, PAGE), (-1, 10, 4, PAGE), (method, 0, 4, PAGE), (method, 10, 0, PAGE),
                  (method, 200, 57, PAGE), (method, 10, 4, 0), (method, 10, 4, PAGE + 64),
                  (method, 10, 4, 2 << 30)):  # fmt: skip
        assert lib.erasure_open(*wrong) == errno.EINVAL
    place()
    addresses, out = kernel.ffi.new("uint64_t[14]"), kernel.ffi.new("erasure_sample *")
    for offsets in ([8] * 14, [16400] * 14, [2**64 - 16] * 14):
        assert lib.erasure_lay(offsets, 1, addresses) == errno.EINVAL
    assert lib.erasure_lay(null, 1, addresses) == errno.EINVAL
    assert lib.erasure_lay([0] * 14, 1, null) == errno.EINVAL
    slices = kernel.ffi.new("erasure_slice[2]")
    for refused in ((0, 0, 1, out, slices, 2), (-1, 1, 1, out, slices, 2),
                    (0, 1, 0, out, slices, 2), (0, 1, 1, null, slices, 2),
                    (0, 1, 1, out, null, 2), (0, 1, 1, out, slices, 0)):  # fmt: skip
        assert lib.erasure_encode(*refused) == errno.EINVAL
    assert lib.erasure_decode([1, 1], 2) == errno.EINVAL
    assert lib.erasure_decode([14], 1) == errno.EINVAL
    assert lib.erasure_decode(null, 1) == errno.EINVAL
    assert lib.erasure_checksums(null) == errno.EINVAL
    assert lib.erasure_matrix(null) == errno.EINVAL


def test_placing_again_and_again_leaks_nothing(place: Place) -> None:
    def mapped() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0]) * PAGE

    place(size=16 * PAGE)
    before = mapped()
    for seed in range(20):
        kernel, _ = place(size=16 * PAGE, seed=seed)
        sample(kernel)
        assert kernel.lib.erasure_decode([0, 1, 12], 3) == 0
    assert mapped() - before < 2 * 14 * 16 * PAGE


def test_our_code_goes_on_with_somebody_elses_matrix(kernel: Kernel, method: int) -> None:
    assert kernel.lib.erasure_use_matrix(bytes(40)) == errno.EINVAL, "nothing is open"
    assert kernel.lib.erasure_open(method, DATA, PARITY, PAGE) == 0
    matrix = content(PARITY, DATA, 9)
    assert kernel.lib.erasure_use_matrix(matrix.tobytes()) == 0
    assert kernel.lib.erasure_use_matrix(kernel.ffi.NULL) == errno.EINVAL
    addresses = kernel.ffi.new("uint64_t[14]")
    assert kernel.lib.erasure_lay([0] * 14, 5, addresses) == 0
    found = sample(kernel).parity_checksum
    data = np.array([reference.filled(5, b, PAGE) for b in range(DATA)])
    expected = reference.times(matrix.tolist(), data)
    assert found == reference.parity_checksum(expected)
    assert matrix_of(kernel, DATA, PARITY) == matrix.tolist()
    assert kernel.lib.erasure_close() == 0
