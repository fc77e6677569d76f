"""random_calls.c: against its reference, at all sizes of its functions, and its symbols."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from perflib import kernels
from perflib.kernels import Kernel
from perflib.machine.libraries.elf import read_elf
from perflib.model.errors import MeasurementError
from tests.kernels.calls import bounds, lay, run
from tests.kernels.here import launched
from tests.reference import code_segment as reference

RANDOM, LOADED, SMALL_PAGES = 0, 0, 1
HUGE = 2 << 20
SIZES = [(40, 64), (100, 128), (5000, 512), (33, 4096), (3, 65536)]


@pytest.fixture(scope="module", params=SIZES, ids=str)
def kernel(request: pytest.FixtureRequest, processor: str) -> Kernel:  # noqa: ARG001
    functions, function_bytes = request.param
    define = {"FUNCTIONS": functions, "FUNCTION_BYTES": function_bytes}
    return kernels.load("random_calls", define=define)


def sample(
    kernel: Kernel, n: int, seed: int, warm: int, steps: int, backing: int = LOADED
) -> tuple[int, int, int]:
    """Smallest and largest instruction pointer, from the begin of the text, and the checksum."""
    begin, end = lay(kernel, RANDOM, n, backing, seed)
    (out,) = run(kernel, warm, steps)
    first = bounds(kernel)[2]
    assert (begin, (end - begin) % HUGE) == (first, 0)
    assert first <= out.first_ip <= out.last_ip < end
    assert out.steps == steps
    assert out.sample.time_ns > 0
    return out.first_ip - first, out.last_ip - first, out.checksum


@pytest.mark.arm64
@pytest.mark.parametrize("backing", [LOADED, SMALL_PAGES])
def test_reference_gives_the_same_samples(kernel: Kernel, backing: int) -> None:
    most, size = bounds(kernel)[:2]
    for n in {1, 2, most // 2, most}:
        for seed, warm, steps in [(0, 0, 1), (5, 7, 100), (2**64 - 1, 100, 1000)]:
            expected = reference.run("random", seed, n, warm, steps, size)
            found = sample(kernel, n, seed, warm, steps, backing)
            assert found == (expected.first, expected.last, expected.checksum)


def test_as_shipped_it_has_8192_functions_of_512_bytes() -> None:
    most, size, first, last, jumps, begin, end = bounds(kernels.load("random_calls"))[:7]
    assert (most, size, jumps, last - first) == (8192, 512, 0, 4 << 20)
    assert (begin, end) == (first, last)


@pytest.mark.arm64
def test_extent_agrees_with_the_symbol_table(kernel: Kernel, tmp_path: Path) -> None:
    functions = read_elf(kernel.build.library).code
    calls = [function for function in functions if re.match(r"call_\d", function[2])]
    most, size, first, last = bounds(kernel)[:4]
    assert [name for _, _, name in calls] == [f"call_{k:05d}" for k in range(most)]
    assert {end - begin for begin, end, _ in calls} == {size}
    assert last - first == calls[-1][1] - calls[0][0] == most * size
    n = min(most, 50)
    low, high, _ = sample(kernel, n, 1, 0, 40 * n)
    assert high + size - low == calls[n - 1][1] - calls[0][0]
    path = tmp_path / "map"
    assert kernel.lib.code_write_map(bytes(path)) == 0
    moved = first - calls[0][0]
    expected = [f"{begin + moved:x} {size:x} {name}" for begin, _, name in calls]
    assert path.read_text().splitlines() == expected


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="its instructions are those of x86-64")
@pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump: apt-get install binutils")
def test_functions_look_like_unoptimised_code_and_skip_nothing(kernel: Kernel) -> None:
    calls = [f for f in read_elf(kernel.build.library).code if re.match(r"call_\d", f[2])]
    begin, end, _ = calls[-1]
    part = ["--no-show-raw-insn", f"--start-address={begin}", f"--stop-address={end}"]
    listing = launched("objdump", "-d", *part, kernel.build.library, check=True).stdout
    words = re.findall(r"^ +[0-9a-f]+:\t(\w+) *(.*)", listing, re.MULTILINE)
    verbs = [verb for verb, _ in words]
    assert verbs[:3] == ["push", "mov", "sub"]
    assert verbs[-2:] == ["leave", "ret"]
    assert set(verbs) <= {
        "push", "mov", "sub", "lea", "cmp", "cmovb", "cmova", "rol", "xor", "movl", "add",
        "leave", "ret",
    }  # fmt: skip
    through_the_stack = sum("(%rbp)" in operands for _, operands in words)
    assert through_the_stack >= 3 + 16 * (end - begin - 64) // 64


@pytest.mark.parametrize(
    ("functions", "function_bytes", "complaint"),
    [
        (10, 32, "FUNCTION_BYTES must be a multiple of 64 from 64 to 65536"),
        (10, 100, "FUNCTION_BYTES must be a multiple of 64 from 64 to 65536"),
        (10, 65600, "FUNCTION_BYTES must be a multiple of 64 from 64 to 65536"),
        (131073, 512, "FUNCTIONS \\* FUNCTION_BYTES must be from 64 bytes to 64 MiB"),
        (2**40, 65536, "FUNCTIONS \\* FUNCTION_BYTES must be from 64 bytes to 64 MiB"),
    ],
)
def test_sizes_that_cannot_be_built_are_refused(
    functions: int, function_bytes: int, complaint: str
) -> None:
    define = {"FUNCTIONS": functions, "FUNCTION_BYTES": function_bytes}
    with pytest.raises(MeasurementError, match=complaint):
        kernels.build("random_calls", define=define)
