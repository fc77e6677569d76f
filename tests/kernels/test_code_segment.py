"""code_segment.c: its cases, its three patterns, its symbols, and the program of its own."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perflib import kernels
from perflib.kernels import Kernel
from perflib.machine.libraries.elf import read_elf
from tests.kernels.brackets import check_since
from tests.kernels.calls import bounds, lay, room, run
from tests.kernels.here import CPUS, launched
from tests.reference import code_segment as reference

PATTERNS = {"random": 0, "page": 1, "chase": 2, "line": 3}
LOADED, SMALL_PAGES = 0, 1
CASES, CASE_BYTES, PAGE, HUGE = 32768, 128, 4096, 2 << 20
JUMPS = 4096
KERNEL = "code_segment"
LINE = re.compile(r"\((\d+), (\d+\.\d{6}), (\d+)\)\n")


# --- cases -------------------------------------------------------------------------------------


@pytest.mark.arm64
@given(
    pattern=st.sampled_from(["random", "page"]),
    n=st.integers(1, CASES * CASE_BYTES // PAGE),
    seed=st.integers(0, 2**64 - 1),
    warm=st.integers(0, 300),
    steps=st.integers(1, 300),
    samples=st.integers(1, 3),
)
@example(pattern="random", n=CASES, seed=2**64 - 1, warm=0, steps=3000, samples=1)
@example(pattern="page", n=1024, seed=0, warm=1, steps=3000, samples=4)
def test_reference_gives_the_same_samples(
    kernel: Kernel, pattern: str, n: int, seed: int, warm: int, steps: int, samples: int
) -> None:
    first = bounds(kernel)[2]
    lay(kernel, PATTERNS[pattern], n, LOADED, seed)
    gone = 0
    for _ in range(2):  # a run resumes where the last one ended, and so does a sample
        gone += warm
        for found in run(kernel, warm, steps, samples):
            expected = reference.run(pattern, seed, n, gone, steps, CASE_BYTES)
            gone += steps
            assert found.first_ip - first == expected.first
            assert found.last_ip - first == expected.last
            assert (found.checksum, found.steps) == (expected.checksum, steps)


def test_places_in_the_pages_use_all_sets_of_a_cache_alike() -> None:
    """Of 1024 pages, those that are 32 apart use each place of a page exactly once."""
    places = {(page % 32, reference.place(page, CASE_BYTES)) for page in range(1024)}
    assert len(places) == 1024


@pytest.mark.arm64
def test_sample_says_when_where_and_how_fast(kernel: Kernel) -> None:
    lay(kernel, PATTERNS["random"], 100, LOADED)
    samples, out = room(kernel, "code_sample", 2)
    before_ns = time.monotonic_ns()
    assert kernel.lib.code_run(10, 1000, 2, out) == 0
    check_since(before_ns, samples["sample"])
    assert (samples["sample"]["cpu_time_ns"] > 0).all()
    assert (samples["involuntary_switches"] >= 0).all()
    assert {*samples["cpu"]} <= {-1, *CPUS}


def test_core_that_the_thread_is_pinned_to_is_named(kernel: Kernel) -> None:
    lay(kernel, PATTERNS["random"], 100, LOADED)
    try:
        for core in CPUS[:2]:
            os.sched_setaffinity(0, {core})
            assert run(kernel, 0, 1000)[0].cpu == core
    finally:
        os.sched_setaffinity(0, CPUS)


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.arm64
def test_what_was_not_built_is_refused_and_what_was_placed_stays(kernel: Kernel) -> None:
    span = kernel.ffi.new("uint64_t[2]")
    lay(kernel, PATTERNS["random"], 50, LOADED, seed=9)
    expected = reference.run("random", 9, 50, 0, 500, CASE_BYTES).checksum
    wrong = {
        (0, CASES + 1, LOADED): errno.ERANGE,
        (0, 2**62, LOADED): errno.ERANGE,
        (1, CASES * CASE_BYTES // PAGE + 1, LOADED): errno.ERANGE,
        (2, JUMPS + 1, SMALL_PAGES): errno.ERANGE,
        (0, 0, LOADED): errno.EINVAL,
        (0, -5, LOADED): errno.EINVAL,
        (4, 1, LOADED): errno.EINVAL,
        (3, JUMPS + 1, SMALL_PAGES): errno.ERANGE,
        (3, 64, LOADED): errno.EINVAL,
        (-1, 1, LOADED): errno.EINVAL,
        (0, 1, 5): errno.EINVAL,
        (0, 1, -1): errno.EINVAL,
        (2, 64, LOADED): errno.EINVAL,  # the loader knows of no ring
    }
    for (pattern, n, backing), error in wrong.items():
        assert kernel.lib.code_lay(pattern, n, backing, 1, span) == (1 << 16) + error
    assert kernel.lib.code_lay(0, 1, LOADED, 1, kernel.ffi.NULL) == (1 << 16) + errno.EINVAL
    assert run(kernel, 0, 500)[0].checksum == expected


def test_bad_arguments_of_the_others_are_refused(kernel: Kernel, tmp_path: Path) -> None:
    null, out = kernel.ffi.NULL, kernel.ffi.new("code_sample *")
    assert kernel.lib.code_bounds(null) == errno.EINVAL
    assert kernel.lib.code_run(-1, 1, 1, out) == errno.EINVAL
    assert kernel.lib.code_run(0, 0, 1, out) == errno.EINVAL
    assert kernel.lib.code_run(0, 1, 0, out) == errno.EINVAL
    assert kernel.lib.code_run(0, 1, 1, null) == errno.EINVAL
    assert kernel.lib.code_write_map(null) == errno.EINVAL
    assert kernel.lib.code_write_map(bytes(tmp_path / "no" / "map")) == errno.ENOENT
    tmp_path.joinpath("link").symlink_to(tmp_path / "elsewhere")
    assert kernel.lib.code_write_map(bytes(tmp_path / "link")) == errno.ELOOP
    assert not tmp_path.joinpath("elsewhere").exists()


def test_a_map_is_not_written_into_what_somebody_put_there(kernel: Kernel, tmp_path: Path) -> None:
    """Anybody can guess the name in /tmp: a hard link to one of our files, a pipe."""
    ours = tmp_path / "ours"
    ours.write_text("kept")
    os.link(ours, tmp_path / "linked")
    os.mkfifo(tmp_path / "pipe")
    assert kernel.lib.code_write_map(bytes(tmp_path / "linked")) == errno.EEXIST
    assert kernel.lib.code_write_map(bytes(tmp_path / "pipe")) == errno.ENXIO
    assert ours.read_text() == "kept"
    if os.geteuid() == 0:
        another = tmp_path / "another's"
        another.write_text("kept")
        os.chown(another, 54321, 54321)
        assert kernel.lib.code_write_map(bytes(another)) == errno.EEXIST
        assert another.read_text() == "kept"


# --- symbols -----------------------------------------------------------------------------------


@pytest.mark.arm64
def test_extent_agrees_with_the_symbol_table(kernel: Kernel) -> None:
    cases = [one for one in read_elf(kernel.build.library).code if one[2].startswith("case_")]
    assert [name for _, _, name in cases] == [f"case_{k:05d}" for k in range(CASES)]
    assert {end - begin for begin, end, _ in cases} == {CASE_BYTES}
    most, case_bytes, first, last, jumps, begin, end, *compiled = bounds(kernel)
    assert (most, case_bytes, jumps) == (CASES, CASE_BYTES, JUMPS)
    assert compiled == [0, 0, 0], "it is in a variant"
    assert last - first == cases[-1][1] - cases[0][0] == CASES * CASE_BYTES
    assert begin == first
    assert (end - begin) % HUGE == 0
    for n in (1, 100, 3000):
        lay(kernel, PATTERNS["random"], n, LOADED)
        (found,) = run(kernel, 0, 20 * n)
        assert found.last_ip + CASE_BYTES - found.first_ip == cases[n - 1][1] - cases[0][0]


@pytest.mark.arm64
def test_perf_map_of_a_ring_has_its_jumps(kernel: Kernel, tmp_path: Path) -> None:
    begin, end = lay(kernel, PATTERNS["chase"], 100, SMALL_PAGES, seed=4)
    path = tmp_path / "map"
    assert kernel.lib.code_write_map(bytes(path)) == 0
    found = [line.split() for line in path.read_text().splitlines() if " jump_" in line]
    code = bytes(kernel.ffi.buffer(kernel.ffi.cast("char *", begin), end - begin))
    entry, jumps = reference.entry(code)
    assert sorted(reference.ring(code)) == [int(at, 16) - begin for at, _, _ in found]
    for at, size, _ in found:
        is_entry = int(at, 16) - begin == entry
        assert int(size, 16) == (jumps.entry_bytes if is_entry else jumps.jump_bytes)
    assert [name for _, _, name in found] == [f"jump_{page:05d}" for page in range(100)]


# --- the ring ----------------------------------------------------------------------------------


def placed_ring(kernel: Kernel, n: int, seed: int, pattern: str = "chase") -> bytes:
    begin, end = lay(kernel, PATTERNS[pattern], n, SMALL_PAGES, seed)
    return bytes(kernel.ffi.buffer(kernel.ffi.cast("char *", begin), end - begin))


@pytest.mark.arm64
@settings(max_examples=40)
@given(n=st.integers(1, JUMPS), seed=st.integers(0, 2**64 - 1))
@example(n=1, seed=0)
@example(n=2, seed=1)
@example(n=JUMPS, seed=2**64 - 1)
def test_ring_is_one_cycle_through_all_pages(kernel: Kernel, n: int, seed: int) -> None:
    code = placed_ring(kernel, n, seed)
    jumps, (entry, kind) = reference.ring(code), reference.entry(code)
    assert sorted(at // PAGE for at in jumps) == list(range(n))
    assert entry % 64 + kind.entry_bytes <= 64
    assert all(at % 64 + kind.jump_bytes <= 64 for at in jumps[1:]), "a jump crosses a cache line"
    lines = {at // PAGE: at % PAGE // 64 for at in jumps}
    for first in range(0, n, 64):
        used = [lines[page] for page in range(first, min(first + 64, n))]
        assert len(set(used)) == len(used), "a line is used twice in a group of 64 pages"
    distinct = len({at % PAGE for at in jumps})
    assert distinct >= min(n, kind.places * 64) - 1, "a place in a page comes again"
    assert all(any(code[page : page + PAGE]) for page in range(0, len(code), PAGE))

    (found,) = run(kernel, 0, 1)
    begin = found.first_ip // PAGE * PAGE
    assert (found.first_ip - begin, found.last_ip - begin) == (min(jumps), max(jumps))


@pytest.mark.arm64
@settings(max_examples=20)
@given(n=st.integers(1, JUMPS), seed=st.integers(0, 2**64 - 1))
@example(n=1, seed=0)
@example(n=JUMPS, seed=2**64 - 1)
def test_its_control_is_one_cycle_through_neighbouring_lines(
    kernel: Kernel, n: int, seed: int
) -> None:
    code = placed_ring(kernel, n, seed, "line")
    jumps, (_, kind) = reference.ring(code), reference.entry(code)
    assert sorted(at // 64 for at in jumps) == list(range(n))
    assert all(at % 64 + kind.jump_bytes <= 64 for at in jumps[1:]), "a jump crosses a cache line"
    (found,) = run(kernel, 0, n)
    assert (found.steps, found.checksum) == (n, 1)
    assert found.last_ip - found.first_ip == max(jumps) - min(jumps)


@pytest.mark.arm64
@pytest.mark.parametrize(
    ("n", "steps", "laps"),
    [(1, 1, 1), (64, 64, 1), (64, 95, 1), (64, 96, 2), (100, 1, 1), (100, 99_999, 1000)],
)
def test_ring_makes_whole_laps_and_counts_them(
    kernel: Kernel, n: int, steps: int, laps: int
) -> None:
    lay(kernel, PATTERNS["chase"], n, SMALL_PAGES)
    for warm in (0, 3 * n):
        (found,) = run(kernel, warm, steps)
        assert (found.steps, found.checksum) == (laps * n, laps)


# --- the program -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def program(processor: str) -> Path:  # noqa: ARG001
    return kernels.build("code_segment", define={"CASES": 2048}, executable=True).library


@pytest.mark.arm64
@pytest.mark.parametrize(
    ("arguments", "extent", "n"),
    [
        (["2048"], 2048 * CASE_BYTES, 2048),
        (["--pages", "4k", "100", "--seed", "7"], 100 * CASE_BYTES, 100),
        (["--pattern", "page", "64"], 63 * PAGE + (reference.place(63, 128) + 1) * CASE_BYTES, 64),
    ],
)
def test_program_prints_extent_time_and_n(
    program: Path, arguments: list[str], extent: int, n: int
) -> None:
    done = launched(program, "--steps", "100000", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    found = LINE.fullmatch(done.stdout)
    assert found is not None, done.stdout
    assert (int(found[1]), int(found[3])) == (extent, n)
    assert float(found[2]) > 0


def test_program_runs_the_ring_on_small_pages_by_default(program: Path) -> None:
    done = launched(program, "--pattern", "chase", "--steps", "10000", "--smaps", "300")
    found = LINE.fullmatch(done.stdout)
    assert found is not None, done.stderr
    assert 299 * PAGE - PAGE < int(found[1]) < 300 * PAGE
    assert "AnonHugePages:         0 kB" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "N, the number of cases, is missing"),
        (["0"], "N needs a whole number from 1 to 2048, not '0'"),
        (["2049"], "N needs a whole number from 1 to 2048, not '2049'"),
        (["12x"], "N needs a whole number from 1 to 2048, not '12x'"),
        (["99999999999999999999"], "N needs a whole number from 1 to 2048"),
        (["--pattern", "page", "65"], "N needs a whole number from 1 to 64, not '65'"),
        (["--pattern", "chase", "4097"], "N needs a whole number from 1 to 4096, not '4097'"),
        (["--pattern", "chase", "--pages", "loaded", "4"], "--pages cannot be loaded"),
        (
            ["--pattern", "pages", "4"],
            "--pattern needs one of random, page, chase, line, not 'pages'",
        ),
        (["--pages", "2m", "4"], "--pages needs one of loaded, 4k, thp, collapse, hugetlb, not"),
        (["4", "--pages"], "--pages needs one of"),
        (["--steps", "0", "4"], "--steps needs a whole number from 1 to"),
        (["--seed", "-1", "4"], "--seed needs a whole number from 0 to"),
        (["--sed", "1", "4"], "unknown option '--sed'"),
        (["4", "5"], "unknown argument '5'"),
        (["-5"], "unknown option '-5'"),
    ],
)
def test_program_names_a_mistake(program: Path, arguments: list[str], complaint: str) -> None:
    done = launched(program, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("code_segment: ")
    assert complaint in done.stderr.splitlines()[0]


def test_program_says_why_the_pages_cannot_be_had(program: Path, tmp_path: Path) -> None:
    source, library = tmp_path / "refuse.c", tmp_path / "refuse.so"
    source.write_text("#include <errno.h>\nint mprotect(void) { errno = EACCES; return -1; }\n")
    compiler, _ = kernels.compiler()
    subprocess.run([compiler, "-fPIC", "-shared", source, "-o", library], check=True)
    preloaded = {**os.environ, "LD_PRELOAD": str(library)}
    done = launched(program, "--pages", "4k", "2048", env=preloaded)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "code_segment: the code cannot be put on 4k pages: mprotect(): Permission denied\n"
    )
