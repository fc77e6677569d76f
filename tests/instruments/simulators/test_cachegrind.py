"""Cachegrind: its output, its geometries, its agreement with the plugin, and how it fails."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib import kernels
from perflib.instruments.simulators import cachegrind as module
from perflib.instruments.simulators.cachegrind import (
    EVENTS,
    CacheGeometry,
    cachegrind,
    cachegrind_tlb,
    geometry_of,
    parse_cachegrind,
)
from perflib.instruments.simulators.simulated import COLUMNS, itlb_misses
from perflib.machine.hardware.caches import Cache
from perflib.model.errors import MeasurementError, UserError
from tests.instruments.simulators.sim_programs import (
    SOURCES,
    assemble,
    fake_tool,
    needs_qemu,
    needs_valgrind,
    needs_x86,
)

SMALL = Path(__file__).parents[2] / "data" / "cachegrind" / "small.out"
KIB = 1024


def counts(table: pd.DataFrame) -> dict[str, int]:
    assert list(table.columns) == list(COLUMNS)
    assert set(table["source"]) == {"simulated: cachegrind"}
    assert table["counter"].is_unique
    return dict(zip(table["counter"], table["simulated_count"], strict=True))


# --- its output --------------------------------------------------------------------------------


def test_output() -> None:
    found = parse_cachegrind(SMALL.read_text().splitlines())
    assert found.geometries["D1"] == "49152 B, 64 B, 12-way associative"
    assert found.events == list(EVENTS)[:9]
    rows = found.lines.to_numpy().tolist()
    assert len(rows) == 4
    assert rows[2] == ["/src/small.c", "helper(int, char const*)", 20, 7, 1, 0, 0, 0, 0, 1, 1, 1]
    assert rows[3] == ["???", "???", 0, 3, 1, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw\n", "", "line 7.*before the 'events:'"),
        ("summary: 35 3 2 10 2 1 6 2 1\n", "", "no 'summary:' line"),
        ("summary: 35", "summary: 36", "do not add up"),
        ("11 20 0", "11 twenty 0", "line 9"),
        ("11 20 0", "eleven 20 0", "line 9"),
        ("11 20 0", "11 -20 0", "line 9.*negative"),
        ("2 1 4 0 0", "2 1 4 0 0 0", "10 counts of 9 events"),
        ("11 20 0", f"11 {1 << 70} 0", "too large"),
    ],
)
def test_malformed_output(old: str, new: str, match: str) -> None:
    text = SMALL.read_text()
    assert old in text
    with pytest.raises(MeasurementError, match=match):
        parse_cachegrind(text.replace(old, new).splitlines())


def test_output_that_is_cut_anywhere() -> None:
    text = SMALL.read_text()
    whole = parse_cachegrind(text.splitlines()).lines
    for length in range(len(text) - 1):
        try:
            found = parse_cachegrind(text[:length].splitlines())
        except MeasurementError:
            continue
        assert found.lines.equals(whole)


@given(st.one_of(st.text(), st.binary().map(lambda raw: raw.decode(errors="replace"))))
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(MeasurementError):
        parse_cachegrind([*SMALL.read_text().splitlines()[:7], *text.splitlines(), "summary: x"])


NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1)
LINES = st.lists(st.tuples(NAMES, NAMES, st.integers(0, 9), st.integers(0, 2**40)), max_size=9)


@given(LINES)
def test_what_is_written_is_read(written: list[tuple[str, str, int, int]]) -> None:
    text = ["events: Ir"]
    for file, function, line, count in written:
        text += [f"fl={file}", f"fn={function}", f"{line} {count}"]
    found = parse_cachegrind([*text, f"summary: {sum(count for *_, count in written)}"])
    assert [tuple(row) for row in found.lines.to_numpy().tolist()] == written


# --- geometries --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "ways", "line", "match"),
    [
        (32 * KIB, 8, 48, "line has a power of two"),
        (32 * KIB, 8, 16, "line has a power of two"),
        (48 * KIB, 8, 64, "number of sets"),
        (32 * KIB, 0, 64, "number of sets"),
        (32 * KIB + 1, 8, 64, "number of sets"),
        (0, 8, 64, "number of sets"),
        (64, 1, 64, "more than a line"),
        (1 << 32, 8, 64, "more than a line and at most"),
    ],
)
def test_geometry_that_is_not_possible(size: int, ways: int, line: int, match: str) -> None:
    with pytest.raises(UserError, match=match):
        CacheGeometry(size, ways, line)


L3 = Cache(3, "unified", 105 << 20, 15, 64, 114688, (0,))


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        (L3, CacheGeometry(104 << 20, 26)),
        (dataclasses.replace(L3, size_bytes=48 * KIB, ways=12), CacheGeometry(48 * KIB, 12)),
        (dataclasses.replace(L3, size_bytes=12 << 20, ways=16), CacheGeometry(12 << 20, 24)),
        (dataclasses.replace(L3, ways=None), None),
        (dataclasses.replace(L3, line_bytes=None), None),
        (dataclasses.replace(L3, size_bytes=64), None),
        (dataclasses.replace(L3, size_bytes=1 << 33, ways=16), None),
    ],
)
def test_the_nearest_geometry_that_is_possible(
    cache: Cache, expected: CacheGeometry | None
) -> None:
    assert geometry_of(cache) == expected


@needs_x86
@needs_valgrind
@pytest.mark.parametrize("machine", [(), (L3, dataclasses.replace(L3, level=1, kind="data"))])
def test_the_model_says_what_was_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Sequence[Cache]
) -> None:
    program = assemble("sim_ends", tmp_path, ENDING="nop", STATUS=0)
    monkeypatch.setattr(module, "caches", lambda: tuple(machine))
    table = cachegrind([program], I1=CacheGeometry(1024, 2, 32), D1=CacheGeometry(512, 8, 32))
    (model,) = set(table["model"])
    assert "I1: 1024 B, 32 B, 2-way associative; D1: 512 B, 32 B, 8-way associative" in model
    rounded = "LL: 109051904 B, 64 B, 26-way associative; nearest possible to L3 105 MiB of 15 ways"
    assert (rounded in model) == bool(machine)


# --- programs ----------------------------------------------------------------------------------


@needs_x86
@needs_valgrind
def test_caches_of_a_known_walk(tmp_path: Path) -> None:
    """20 pages of code in a circle: in a cache of 16 lines in one set each jump misses."""
    program = assemble("sim_pages", tmp_path, PAGES=20, ROUNDS=7)
    cache = CacheGeometry(16 * 64, 16)
    found = counts(cachegrind([program], I1=cache, branches=False))
    assert found["instructions"] == 2 + 7 * 21 + 3
    assert found["I1 misses"] == 1 + 7 * 20
    assert found["LL instruction misses"] == 21
    assert found["loads"] == found["stores"] == 0
    assert "conditional branches" not in found
    branches = counts(cachegrind([program], I1=cache))
    assert branches["conditional branches"] == 7
    assert 1 <= branches["conditional branches mispredicted"] <= 7


@needs_x86
@needs_valgrind
@needs_qemu
@pytest.mark.parametrize(("entries", "ways"), [(16, 4), (8, 8), (64, 4)])
def test_tlb_agrees_with_the_plugin(tmp_path: Path, entries: int, ways: int) -> None:
    """Exactly, for a program without a library: there is no start-up code that could differ."""
    program = assemble("sim_pages", tmp_path, PAGES=20, ROUNDS=7)
    mine = counts(cachegrind_tlb([program], entries=entries, ways=ways, second_level=(128, 8)))
    plugin = itlb_misses([program], entries=entries, ways=ways, second_level=(128, 8))
    for row in plugin.itertuples():
        assert mine[str(row.counter)] == row.simulated_count


@needs_x86
@needs_valgrind
@needs_qemu
def test_tlb_agrees_with_the_plugin_on_kv() -> None:
    """But for the start of the program, when Valgrind's loader does more and in another place.

    In a fully associative TLB, that is: in sets it matters where the libraries lie, which differs.
    """
    argv = [str(kernels.build("kv", executable=True, copies=30).library)]
    argv += ["--events", "1", "--first", "4"]
    mine = counts(cachegrind_tlb(argv, entries=8, ways=8))
    plugin = itlb_misses(argv, entries=8, ways=8).set_index("counter")["simulated_count"]
    assert plugin["iTLB misses"] > 10_000
    assert mine["iTLB misses"] == pytest.approx(plugin["iTLB misses"], abs=300)
    assert mine["instructions"] == pytest.approx(plugin["instructions"], rel=0.001)


@needs_x86
@needs_valgrind
def test_by_symbol_and_place(tmp_path: Path) -> None:
    program = assemble("sim_aliases", tmp_path, "-g", N=50, DISTANCE=4096, FILL=1)
    for table in (cachegrind([program], by="symbol"), cachegrind([program], by="place")):
        instructions = table[table["counter"] == "instructions"]
        assert instructions["simulated_count"].sum() == 2 + 50 * 5 + 3
        assert instructions["simulated_count"].is_monotonic_decreasing
        assert set(instructions["symbol"]) == {"_start"}
    source = SOURCES / "sim_aliases.S"
    loads = table[table["counter"] == "loads"]
    assert loads["simulated_count"].tolist() == [50]
    file, _, line = loads["place"].iloc[0].rpartition(":")
    assert file == str(source)
    assert "LOAD" in source.read_text().splitlines()[int(line) - 1]


@needs_x86
@needs_valgrind
def test_avx512_is_named(tmp_path: Path) -> None:
    program = assemble("sim_ends", tmp_path, ENDING="vpaddd %zmm0, %zmm1, %zmm2", STATUS=0)
    with pytest.raises(MeasurementError, match=r"AVX-512 .*0x62.*-march=haswell"):
        cachegrind([program])


@needs_x86
@needs_valgrind
def test_programs_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = assemble("sim_ends", tmp_path, ENDING="nop", STATUS=3)
    with pytest.raises(MeasurementError, match="exit status 3"):
        cachegrind([program])
    program = assemble("sim_ends", tmp_path, ENDING="jmp _start", STATUS=0)
    with pytest.raises(MeasurementError, match=r"did not end within 0\.5 s"):
        cachegrind([program], timeout_s=0.5)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    program = assemble("sim_ends", tmp_path, ENDING="movl %eax, 0", STATUS=0)
    with pytest.raises(MeasurementError, match="died of signal 11"):
        cachegrind([program])
    assert not list(empty.iterdir())  # Valgrind writes core files of its own


@needs_valgrind
def test_a_program_that_is_replaced_by_another() -> None:
    with pytest.raises(MeasurementError, match=r"exec\)"):
        cachegrind(["env", "true"])


def test_valgrind_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.touch(mode=0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"valgrind is not on PATH.*apt-get install valgrind"):
        cachegrind_tlb([str(program)])


def test_a_valgrind_that_writes_nonsense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        '[ "$1" = --version ] && echo valgrind-9.9.9 && exit 0\n'
        'for word; do case "$word" in --cachegrind-out-file=*) file=${word#*=};; esac; done\n'
        'printf "\\377\\000nonsense" > "${file%\\%p}$$"'
    )
    fake_tool(tmp_path, "valgrind", script)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(MeasurementError, match="cannot be read, line 1"):
        cachegrind(["true"])


def test_bad_requests() -> None:
    with pytest.raises(UserError, match="timeout_s"):
        cachegrind(["true"], timeout_s=0)
    with pytest.raises(UserError, match="did you mean 'place'"):
        cachegrind(["true"], by="places")  # type: ignore[arg-type]
