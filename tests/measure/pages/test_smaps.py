"""Which pages back a range of addresses: made-up texts of smaps, and the real ones of processes."""

from __future__ import annotations

import contextlib
import mmap
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from perflib.measure.pages import smaps
from perflib.measure.pages.smaps import TextPages, backing_of, violated
from perflib.model.errors import MeasurementError

MIB = 1 << 20
BEGIN = 0x7F5A00000000
END = BEGIN + 4 * MIB
HUGE = ("thp", "collapse", "hugetlb", "hugectl")
GIB = 1 << 30


def mapping(begin: int, end: int, path: str = "", page_kib: int = 4, **counts_kib: int) -> str:
    """One mapping as Linux 6.18 prints it."""
    size = (end - begin) >> 10
    fields = {
        "Size": size,
        "KernelPageSize": page_kib,
        "MMUPageSize": page_kib,
        "Rss": 0 if page_kib > 4 else size,
        "Pss": size,
        "Shared_Clean": 0,
        "Private_Dirty": size,
        "Anonymous": size,
        "AnonHugePages": 0,
        "ShmemPmdMapped": 0,
        "FilePmdMapped": 0,
        "Shared_Hugetlb": 0,
        "Private_Hugetlb": 0,
        "Swap": 0,
        "Locked": 0,
    } | counts_kib
    lines = [f"{begin:x}-{end:x} r-xp 00000000 fe:00 10141731 {' ' * 20}{path}"]
    lines += [f"{name + ':':<16}{value:>8} kB" for name, value in fields.items()]
    return "\n".join([*lines, "THPeligible:           0", "VmFlags: rd ex mr mw me "]) + "\n"


LIBC = mapping(BEGIN - 16 * MIB, BEGIN - 14 * MIB, "/usr/lib/libc.so.6", AnonHugePages=2048)
STACK = mapping(0x7FFD00000000, 0x7FFD00200000, "[stack]", AnonHugePages=2048)
VSYSCALL = mapping(0xFFFFFFFFFF600000, 0xFFFFFFFFFF601000, "[vsyscall]", Rss=0)


def pages(*mappings: str, begin: int = BEGIN, end: int = END) -> TextPages:
    """Which pages back the range, in a process that has other mappings on both sides."""
    return backing_of("".join([LIBC, *mappings, STACK, VSYSCALL]), begin, end)


# --- each kind of page ---------------------------------------------------------------------------


def test_small_pages_are_4k_and_nothing_else() -> None:
    found = pages(mapping(BEGIN, END, "/tmp/lib.so"))
    assert found == TextPages(
        range_bytes=4 * MIB,
        mapped_bytes=4 * MIB,
        size_bytes=4 * MIB,
        resident_bytes=4 * MIB,
        huge_bytes=0,
        by_kind={},
        kernel_page_bytes=4096,
        files=("/tmp/lib.so",),
    )
    assert violated("4k", found) == violated("loaded", found) == ""
    for requested in HUGE:
        assert violated(requested, found) == (
            f"requested pages of 2 MiB ({requested}), found no huge page of 4096 KiB"
        )


@pytest.mark.parametrize(
    ("kind", "page_kib", "fits"),
    [
        ("AnonHugePages", 4, {"thp", "collapse"}),
        ("ShmemPmdMapped", 4, {"hugectl"}),
        ("FilePmdMapped", 4, {"hugectl"}),
        ("Shared_Hugetlb", 2048, {"hugetlb", "hugectl"}),
        ("Private_Hugetlb", 2048, {"hugetlb", "hugectl"}),
    ],
)
def test_each_kind_of_huge_page(kind: str, page_kib: int, fits: set[str]) -> None:
    found = pages(mapping(BEGIN, END, "", page_kib, **{kind: 4096}))
    assert found.by_kind == {kind: 4 * MIB}
    assert found.huge_bytes == found.resident_bytes == 4 * MIB
    assert found.kernel_page_bytes == page_kib << 10
    assert {requested for requested in HUGE if not violated(requested, found)} == fits
    assert violated("4k", found).startswith(
        f"requested pages of 4 KiB (4k), found {kind} 4096 KiB of 4096 KiB"
    )
    assert violated("loaded", found) == ""


def test_pages_of_1_gib_are_no_pages_of_2_mib() -> None:
    mapped = mapping(BEGIN, BEGIN + GIB, "", 1 << 20, Private_Hugetlb=1 << 20)
    found = pages(mapped, end=BEGIN + GIB)
    assert (found.kernel_page_bytes, found.huge_bytes) == (GIB, GIB)
    assert violated("hugetlb_1g", found) == ""
    assert violated("hugetlb", found) == (
        "requested pages of 2 MiB (hugetlb), found pages of 1048576 KiB"
    )
    small = pages(mapping(BEGIN, END, "", 2048, Private_Hugetlb=4096))
    assert violated("hugetlb_1g", small) == (
        "requested pages of 1 GiB (hugetlb_1g), found pages of 2048 KiB"
    )


def test_a_library_that_is_already_on_huge_pages_is_named() -> None:
    text = mapping(BEGIN, END, "/srv/my lib.so (deleted)", FilePmdMapped=2048)
    sentence = violated("4k", pages(text))
    assert sentence.startswith(
        "requested pages of 4 KiB (4k), found FilePmdMapped 2048 KiB of 4096 KiB: "
        "the file system gave /srv/my lib.so (deleted) huge pages unasked"
    )
    assert "file system" not in violated("4k", pages(mapping(BEGIN, END, AnonHugePages=2048)))


def test_a_kernel_that_counts_the_pool_as_resident() -> None:
    found = pages(mapping(BEGIN, END, page_kib=2048, Rss=4096, Private_Hugetlb=4096))
    assert found.resident_bytes == 4 * MIB


# --- ranges and mappings that do not coincide ----------------------------------------------------


def test_a_mapping_larger_than_the_range() -> None:
    larger = (BEGIN - 2 * MIB, END + 6 * MIB)
    found = pages(mapping(*larger, AnonHugePages=12 << 10))
    assert (found.range_bytes, found.mapped_bytes) == (4 * MIB, 4 * MIB)
    assert found.size_bytes == 12 * MIB
    assert violated("thp", found) == ""
    # Where in the mapping its huge pages are, smaps does not say: no verdict holds but "violated".
    partly = pages(mapping(*larger, AnonHugePages=4096))
    assert violated("thp", partly).endswith("found AnonHugePages 4096 KiB of 12288 KiB")
    assert violated("4k", partly).endswith("found AnonHugePages 4096 KiB of 12288 KiB")


def test_two_mappings_of_which_one_is_huge() -> None:
    middle = BEGIN + 2 * MIB
    found = pages(
        mapping(BEGIN, middle, "/a", FilePmdMapped=2048), mapping(middle, END, "/b", Rss=8)
    )
    assert found.by_kind == {"FilePmdMapped": 2 * MIB}
    assert found.resident_bytes == 2 * MIB + 8192
    assert found.files == ("/a", "/b")
    assert all(violated(requested, found) for requested in ("4k", *HUGE))
    whole = pages(
        mapping(BEGIN, middle, FilePmdMapped=2048),
        mapping(middle, END, page_kib=2048, Private_Hugetlb=2048),
    )
    assert violated("hugectl", whole) == ""
    assert violated("hugetlb", whole).endswith(
        "found FilePmdMapped 2048 KiB, Private_Hugetlb 2048 KiB of 4096 KiB"
    )


def test_a_gap_is_not_what_was_asked_for() -> None:
    found = pages(mapping(BEGIN, BEGIN + MIB), mapping(BEGIN + 3 * MIB, END))
    assert found.mapped_bytes == 2 * MIB
    for requested in ("4k", *HUGE):
        assert violated(requested, found).endswith("but 2048 KiB of the 4096 KiB are not mapped")
    assert violated("loaded", found) == ""


def test_nothing_is_mapped_there() -> None:
    found = pages()
    assert (found.mapped_bytes, found.size_bytes, found.kernel_page_bytes) == (0, 0, 0)
    assert violated("4k", found).endswith("but 4096 KiB of the 4096 KiB are not mapped")
    assert backing_of("", BEGIN, END) == found


def test_neighbours_that_only_touch_the_range_are_left_out() -> None:
    found = pages(
        mapping(BEGIN - 2 * MIB, BEGIN, AnonHugePages=2048),
        mapping(BEGIN, END),
        mapping(END, END + 2 * MIB, AnonHugePages=2048),
    )
    assert found.size_bytes == 4 * MIB
    assert violated("4k", found) == ""


# --- texts with odd things in them ---------------------------------------------------------------


def test_a_path_that_looks_like_something_else() -> None:
    name = f"/tmp/{BEGIN:x}-{END:x} r-xp \r AnonHugePages: 4096 kB"
    found = pages(mapping(BEGIN, END, name))
    assert found.files == (name,)
    assert found.by_kind == {}


def test_a_kernel_that_lacks_fields() -> None:
    lines = mapping(BEGIN, END, AnonHugePages=4096).splitlines(keepends=True)
    later = ("ShmemPmdMapped", "FilePmdMapped", "Shared_Hugetlb", "Private_Hugetlb", "THP")
    old = "".join(line for line in lines if not line.startswith(later))
    assert "FilePmdMapped" not in old
    assert violated("thp", pages(old)) == ""
    assert violated("4k", pages(old))


@pytest.mark.parametrize("after", ["Rss:", "AnonHugePages:", "FilePmdMapped:", "THPeligible:"])
def test_a_text_that_was_cut_off_is_no_proof_of_small_pages(after: str) -> None:
    whole = LIBC + mapping(BEGIN, END, Private_Hugetlb=4096)
    cut = whole[: whole.rindex(after)]
    with pytest.raises(MeasurementError, match="ends in the middle of the mapping 7f5a00000000-"):
        backing_of(cut, BEGIN, END)


# --- reading -------------------------------------------------------------------------------------


def test_a_process_that_has_ended(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="process 12 cannot be seen: it has ended"):
        smaps.read(12, tmp_path)
    (tmp_path / "proc/13").mkdir(parents=True)
    (tmp_path / "proc/13/smaps").touch()  # as a zombie has it
    with pytest.raises(MeasurementError, match="process 13 cannot be seen: it has ended"):
        smaps.read(13, tmp_path)


def test_a_process_that_may_not_be_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = PermissionError(13, "Permission denied", "12/smaps")
    monkeypatch.setattr(Path, "read_bytes", Mock(side_effect=refused))
    with pytest.raises(MeasurementError, match=r"12/smaps: Permission denied\. Its own user"):
        smaps.read(12, tmp_path)


# --- real pages ----------------------------------------------------------------------------------

# What the kernel counts for the whole process, before the memory is mapped and afterwards: the
# difference does not pass through the code under test.
_ANONYMOUS = """
import ctypes, mmap, sys
def count():
    rows = map(str.split, open("/proc/self/smaps_rollup"))
    return sum(int(row[1]) for row in rows if row[0] == "AnonHugePages:")
before, size = count(), 4 << 20
memory = mmap.mmap(-1, size + (2 << 20), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
begin = -(-start // (2 << 20)) * (2 << 20)
memory.madvise(int(sys.argv[1]), begin - start, size)
ctypes.memset(begin, 1, size)
print(begin, begin + size, count() - before, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def real(advice: int) -> Iterator[tuple[TextPages, int]]:
    """The pages of a process that maps some memory and waits, and the huge KiB it came to."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", _ANONYMOUS, str(advice)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        if not said:
            assert process.stderr is not None
            pytest.skip(f"such memory cannot be had here: {process.stderr.read()[-200:]}")
        begin, end, huge_kib = map(int, said)
        yield backing_of(smaps.read(process.pid), begin, end), huge_kib
        process.communicate()


def test_real_memory_that_is_not_to_be_huge() -> None:
    with real(mmap.MADV_NOHUGEPAGE) as (found, huge_kib):
        assert huge_kib == 0
        assert violated("4k", found) == ""
        assert found.resident_bytes >= 4 * MIB
        assert all(violated(requested, found) for requested in HUGE)


def test_real_memory_on_transparent_huge_pages() -> None:
    with real(mmap.MADV_HUGEPAGE) as (found, huge_kib):
        if not huge_kib:
            pytest.skip("the kernel gave no transparent huge page: never, or memory is fragmented")
        assert found.by_kind == {"AnonHugePages": huge_kib << 10}
        assert (violated("thp", found) == "") == (huge_kib == 4096)
        assert "AnonHugePages" in violated("4k", found)
        assert violated("hugetlb", found)
