"""Caches and TLBs of a program whose accesses are known; geometries; and all that goes wrong."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.instruments.simulators.cachegrind import (
    CACHES,
    TLBS,
    cachegrind_counts,
    instruction_counts,
    read_counts,
)
from perflib.instruments.simulators.geometry import CacheLevel, Geometry, geometry
from perflib.instruments.simulators.run import SimulatorError
from perflib.model.errors import MeasurementError, UserError
from tests.instruments.simulators.sim_programs import SOURCES, fake_tool, needs_valgrind
from tests.instruments.threads.programs import compiled

LINES, TURNS = 4096, 3  # 256 KiB: in no first level here
SMALL = CacheLevel(32 << 10, 8)
TLB = CacheLevel(16 * 4096, 4, 4096)
SHAPE = Geometry(
    "small", SMALL, SMALL, CacheLevel(1 << 20, 16), TLB, TLB, CacheLevel(128 * 4096, 8, 4096)
)
EVENTS = "Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw Bc Bcm Bi Bim"


@pytest.fixture(scope="module")
def strides(tmp_path_factory: pytest.TempPathFactory) -> str:
    source = (SOURCES / "strides.c").read_text()
    flags = [f"-DLINES={LINES}", f"-DTURNS={TURNS}"]
    return str(compiled(tmp_path_factory.mktemp("strides"), source, *flags))


def of_function(table: pd.DataFrame, symbol: str) -> dict[str, int]:
    rows = table[table["symbol"] == symbol]
    assert rows["counter"].is_unique
    return dict(zip(rows["counter"], rows["simulated_count"], strict=True))


# --- what is counted -----------------------------------------------------------------------------


@needs_valgrind
def test_misses_are_those_of_the_function_that_makes_them(strides: str) -> None:
    table = cachegrind_counts([strides], SHAPE)
    assert set(table["counter"]) <= set(CACHES)
    assert table["tool"].str.startswith("valgrind ").all()
    walking, staying = of_function(table, "every_line"), of_function(table, "one_line")
    loads = LINES * TURNS
    assert walking["loads"] == pytest.approx(loads, abs=5)  # and its return address
    assert walking["L1d misses of loads"] == pytest.approx(loads, abs=5)
    assert walking["LL misses of loads"] == pytest.approx(LINES, abs=5)  # it holds the array
    assert staying["loads"] == pytest.approx(loads, abs=5)
    assert staying.get("L1d misses of loads", 0) <= 2


@needs_valgrind
def test_instructions_alone_are_counted_as_with_caches(strides: str) -> None:
    both = [instruction_counts([strides]), cachegrind_counts([strides], SHAPE)]
    alone, simulated = (of_function(one, "every_line")["instructions"] for one in both)
    assert alone == simulated > LINES * TURNS
    assert set(both[0]["counter"]) == {"instructions"}


@needs_valgrind
def test_a_larger_cache_has_no_misses_but_the_first(strides: str) -> None:
    large = Geometry("large", SMALL, CacheLevel(1 << 20, 16), CacheLevel(1 << 21, 16))
    walking = of_function(cachegrind_counts([strides], large), "every_line")
    assert walking["L1d misses of loads"] == pytest.approx(LINES, abs=5)


@needs_valgrind
def test_tlbs_count_pages(strides: str) -> None:
    table = cachegrind_counts([strides], SHAPE, tlbs=True)
    assert set(table["counter"]) == set(TLBS)
    walking = of_function(table, "every_line")
    pages = LINES * 64 // 4096  # 64: four times what the TLB holds
    assert walking["dTLB misses"] == pytest.approx(pages * TURNS, abs=2)
    assert walking["STLB misses"] == pytest.approx(pages, abs=3)
    assert of_function(table, "one_line").get("dTLB misses", 0) <= 2


@needs_valgrind
def test_without_a_second_level_nothing_is_said_of_it(strides: str) -> None:
    shape = Geometry("one level", SMALL, SMALL, SMALL, TLB, TLB)
    found = set(cachegrind_counts([strides], shape, tlbs=True)["counter"])
    assert found == set(TLBS) - {"STLB misses"}


# --- what goes wrong -----------------------------------------------------------------------------


@needs_valgrind
def test_tlbs_that_are_not_known_are_not_simulated(strides: str) -> None:
    with pytest.raises(MeasurementError, match="TLBs of bare are not known"):
        cachegrind_counts([strides], Geometry("bare", SMALL, SMALL, SMALL), tlbs=True)


def test_without_valgrind_it_says_how_to_get_it(
    strides: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="apt-get install valgrind"):
        cachegrind_counts([strides], SHAPE)


@needs_valgrind
def test_a_program_that_fails_counts_nothing() -> None:
    with pytest.raises(SimulatorError, match="ended with exit status 1"):
        cachegrind_counts(["false"], SHAPE)


def test_an_unknown_instruction_names_the_remedy(
    strides: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = "echo 'vex amd64->IR: unhandled instruction bytes: 0x62' >&2; exit 132"
    fake_tool(
        tmp_path, "valgrind", f'case "$1" in --version) echo valgrind-3.19.0;; *) {said};; esac'
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(MeasurementError, match="-march=haswell"):
        cachegrind_counts([strides], SHAPE)


def written(folder: Path, text: str) -> Path:
    path = folder / "counts"
    path.write_text(text)
    return path


WHOLE = f"""desc: I1 cache: none
cmd: made up
events: {EVENTS}
fl=a.c
fn=first
3 10 1 1 4 2 1 2 1 0 1 1 1 0
4 10 0 0 4
fl=???
fn=???
0 5 1 1 2
fn=first
0 1 1 1 1 1 1 1 1 1 1 1 1 1
summary: 26 3 3 11 3 2 3 2 1 2 2 2 1
"""


def test_lines_add_up_to_functions_of_a_file(tmp_path: Path) -> None:
    table = read_counts(written(tmp_path, WHOLE), CACHES)
    totals = table.groupby("counter")["simulated_count"].sum()
    assert totals["instructions"] == 26
    assert totals["mispredicted branches"] == 3
    assert (table["simulated_count"] > 0).all()
    first = table[(table["symbol"] == "first") & (table["counter"] == "instructions")]
    assert dict(zip(first["source_file"], first["simulated_count"], strict=True)) == {
        "a.c": 20,
        "": 1,
    }
    assert set(table["symbol"]) == {"first", "[unknown]"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (WHOLE.replace("summary: 26", "summary: 27"), "do not add up"),
        (WHOLE.partition("summary")[0], "do not add up"),
        (WHOLE.replace("4 10", "4 ten"), "no file of cachegrind"),
        (WHOLE.replace(EVENTS, "Ir"), "no file of cachegrind"),
        (WHOLE.replace("3 10 1", "3 10 1 1 1 1 1 1 1 1 1 1 1 1 1"), "no file of cachegrind"),
        ("", "no file of cachegrind with Bc, Bcm"),
    ],
)
def test_damaged_counts_are_not_used(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(MeasurementError, match=why):
        read_counts(written(tmp_path, text), CACHES)


def test_counts_that_were_not_written(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="wrote no counts"):
        read_counts(tmp_path / "none", CACHES)


# --- geometries ----------------------------------------------------------------------------------

MACHINE = {
    "caches": [
        {"level": 1, "kind": "data", "size_bytes": 49152, "ways": 12, "line_bytes": 64},
        {"level": 1, "kind": "instruction", "size_bytes": 32768, "ways": 8, "line_bytes": 64},
        {"level": 3, "kind": "unified", "size_bytes": 30 << 20, "ways": 12, "line_bytes": 64},
        {"level": 2, "kind": "unified", "size_bytes": 2 << 20, "ways": 16, "line_bytes": 64},
    ],
    "tlbs": [],
}


def test_this_machine_s() -> None:
    found = geometry("here", MACHINE)
    assert (found.L1d, found.L1i) == (CacheLevel(49152, 12), CacheLevel(32768, 8))
    assert found.levels["LL"] == CacheLevel(30 << 20, 15)  # 40,960 sets are not possible
    assert found.tlbs is None
    changed = geometry("LL=8M:16 iTLB=64:8 dTLB=64:4", MACHINE)
    assert changed.levels["LL"] == CacheLevel(8 << 20, 16)
    assert changed.tlbs == (CacheLevel(64 * 4096, 8, 4096), CacheLevel(64 * 4096, 4, 4096), None)
    assert geometry("Zen 2 L1i=64K:4", {}).L1i == CacheLevel(64 << 10, 4)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("Haswel", "did you mean 'Haswell'"),
        ("here L9=1K:2", "level of a geometry 'L9'"),
        ("here L1i=33K:8", "must be a power of two"),
        ("here iTLB=64K:8", "write entries:ways"),
        ("here L1i=", "write size:ways"),
        ("here L1i=0:1", "at least one line"),
        ("here L1i=64:2", "at least one line"),
        ("here LL=9999M:1", "at most 2 GiB"),
        ("here L1i=1:0", "not possible"),
    ],
)
def test_wrong_geometries(words: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        geometry(words, MACHINE)


def test_a_machine_that_says_nothing_of_its_caches() -> None:
    with pytest.raises(UserError, match="does not say what its L1i, L1d, LL is"):
        geometry("here", {"caches": []})


@given(st.integers(1, 1 << 31), st.integers(1, 64))
def test_a_fitted_level_is_one_that_can_be_simulated(size_bytes: int, ways: int) -> None:
    level = CacheLevel.fitted(size_bytes, ways)
    sets = level.size_bytes // level.ways // level.line_bytes
    assert sets & (sets - 1) == 0
    assert level.size_bytes == sets * level.ways * level.line_bytes
    assert level.ways <= max(2 * ways, 2) or level.size_bytes <= ways * 64
    # Half of what one way more would add, and a part of a line.
    assert abs(level.size_bytes - size_bytes) <= 0.5 * sets * 64 + 63
