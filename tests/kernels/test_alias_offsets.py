"""alias_offsets.c and alias_blas.c: against their reference, built in every way."""

from __future__ import annotations

import ctypes.util
import errno
import sys
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray

from perflib import kernels
from perflib.kernels import Kernel
from perflib.machine.libraries.blas import blas_libraries
from tests.kernels.brackets import check_brackets
from tests.kernels.calls import room
from tests.kernels.here import launched
from tests.reference import alias_offsets as reference

CONVOLUTION, COPY, MEMCPY = 0, 1, 2
VARIANTS = ["O0", "O0-restrict", "O2", "O2-restrict", "O3", "O3-restrict"]
OFFSETS = [0, 4, 2048, 4092, 4096, 65536]


def sweep(
    kernel: Kernel, words: tuple[int, ...], offsets: list[int], *, together: int = 0
) -> NDArray[Any]:
    samples, out = room(kernel, "offset_sample", len(offsets))
    call = kernel.lib.blas_sweep if kernel.build.name == "alias_blas" else kernel.lib.offsets_sweep
    assert call(*words, offsets, len(offsets), together, 1, 2, out) == 0
    check_brackets(samples["timed"])
    return samples


# --- convolution and copies ----------------------------------------------------------------------


@pytest.mark.arm64
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n", [16, 17, 1000, 5000])
def test_reference_gives_the_same_at_every_offset(variant: str, n: int) -> None:
    kernel = kernels.load("alias_offsets", variant=variant)
    expected = {
        CONVOLUTION: reference.checksum(reference.convolution(n)),
        COPY: reference.checksum(reference.copy(n)),
        MEMCPY: reference.checksum(reference.copy(n)),
    }
    for function, checksum in expected.items():
        samples = sweep(kernel, (function, n), OFFSETS)
        assert set(samples["checksum"].tolist()) == {checksum}
        assert (samples["calls"] == 2).all()
        assert (samples["involuntary_switches"] >= 0).all()
        assert (samples["cpu"] >= -1).all()


@pytest.mark.arm64
def test_the_output_is_at_its_offset_and_the_input_stays() -> None:
    samples = sweep(kernels.load("alias_offsets"), (COPY, 100), OFFSETS)
    (first,) = set(samples["first"].tolist())
    assert first % 4096 == 0
    (gap,) = {
        second - first - offset
        for second, offset in zip(samples["second"].tolist(), OFFSETS, strict=True)
    }
    assert gap % 4096 == 0


@pytest.mark.arm64
@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((3, 100, [0], 1, 0, 0, 1), errno.EINVAL),
        ((-1, 100, [0], 1, 0, 0, 1), errno.EINVAL),
        ((0, 15, [0], 1, 0, 0, 1), errno.ERANGE),
        ((0, 2**31, [0], 1, 0, 0, 1), errno.ERANGE),
        ((0, 100, [2], 1, 0, 0, 1), errno.EINVAL),
        ((0, 100, [-4], 1, 0, 0, 1), errno.ERANGE),
        ((0, 100, [(1 << 20) + 4], 1, 0, 0, 1), errno.ERANGE),
        ((0, 100, [0], 0, 0, 0, 1), errno.EINVAL),
        ((0, 100, [0], 1, 0, 0, 0), errno.EINVAL),
        ((0, 100, [0], 1, 0, -1, 1), errno.EINVAL),
    ],
)
def test_wrong_arguments_are_refused(words: tuple[Any, ...], error: int) -> None:
    kernel = kernels.load("alias_offsets")
    out = kernel.ffi.new("offset_sample[1]")
    assert kernel.lib.offsets_sweep(*words, out) == (1 << 16) + error


@pytest.mark.arm64
def test_as_a_program_it_prints_addresses_and_checksum() -> None:
    program = kernels.build("alias_offsets", variant="O2", executable=True).library
    said = launched(program, "0", "100", "4084", "1", check=True).stdout.split()
    first, second, checksum = (int(word, 16) for word in said)
    assert (second - first) % 4096 == 4084
    assert checksum == reference.checksum(reference.convolution(100))
    for words in (["0"], ["9", "100", "0", "1"], ["0", "100", "3", "1"]):
        assert launched(program, *words).returncode == 2


# --- dgemv ---------------------------------------------------------------------------------------


def opened(kernel: Kernel, path: str, dgemv: str, set_threads: str) -> tuple[int, str]:
    said = kernel.ffi.new("char[512]")
    answer = kernel.lib.blas_open(path.encode(), dgemv.encode(), set_threads.encode(), said, 512)
    return answer, kernel.ffi.string(said).decode()


@pytest.mark.parametrize("package", ["numpy", "scipy"])  # integers of 64 and of 32 bits
def test_dgemv_gives_what_numpy_gives(package: str) -> None:
    found = [one for one in blas_libraries()[0] if one.name == f"openblas-{package}"]
    if not found:
        pytest.skip(f"{package} brings no OpenBLAS of its own here")
    kernel = kernels.load("alias_blas")
    assert opened(kernel, found[0].path, found[0].dgemv, found[0].set_threads) == (0, "")
    for n in (1, 7, 128, 130):
        for by_column in (0, 1):
            for together in (0, 1):
                samples = sweep(kernel, (by_column, n), [0, 8, 64, 2048, 4096], together=together)
                assert set(samples["checksum"].tolist()) == {reference.dgemv_checksum(n)}


def test_what_is_no_library_or_no_blas_is_reported() -> None:
    kernel = kernels.load("alias_blas")
    answer, said = opened(kernel, "/nowhere/libblas.so", "cblas_dgemv", "")
    assert answer == (3 << 16) + errno.ENOENT
    assert "libblas.so" in said
    maths = ctypes.util.find_library("m")
    assert maths is not None
    answer, said = opened(kernel, maths, "cblas_dgemv", "")
    assert answer == (3 << 16) + errno.ENOSYS
    assert "cblas_dgemv" in said
    answer, said = opened(kernel, maths, "cos", "no_such_function")
    assert answer == (3 << 16) + errno.ENOSYS
    assert "no_such_function" in said


def test_nothing_opened_is_reported(tmp_path: Path) -> None:
    """In a process of its own: another test may have opened one here."""
    built = kernels.build("alias_blas")
    code = (
        "from perflib.kernels import open_library\n"
        f"lib, ffi = open_library({str(built.library)!r}, {str(built.module)!r})\n"
        "print(lib.blas_sweep(1, 4, [0], 1, 0, 0, 1, ffi.new('offset_sample[1]')))"
    )
    said = launched(sys.executable, "-c", code, check=True, cwd=tmp_path).stdout
    assert int(said) == (3 << 16) + errno.ENXIO
