"""iTLB misses and 4K aliases of small programs: exact counts, and all that goes wrong."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perflib import kernels
from perflib.instruments.simulators.models import (
    StoreBufferModel,
    TlbModel,
    itlb_of_this_machine,
)
from perflib.instruments.simulators.qemu import COLUMNS, qemu_counts
from perflib.instruments.simulators.run import SimulatorError
from perflib.machine.hardware import cpuid
from perflib.machine.libraries.elf import read_elf
from perflib.model.errors import MeasurementError, UserError
from tests.instruments.simulators.sim_programs import (
    assemble,
    fake_tool,
    needs_qemu,
    needs_x86,
)
from tests.reference.tlb import Access, aliased, tlb_misses

FIRST_PAGE = 0x401  # of a static program's code; where exactly does not matter


def counts(table: pd.DataFrame) -> dict[str, int]:
    assert list(table.columns[: len(COLUMNS)]) == list(COLUMNS)
    assert table["source"].str.startswith("simulated: ").all()
    assert table["counter"].is_unique
    return dict(zip(table["counter"], table["simulated_count"], strict=True))


def itlb_misses(
    argv: list[str], entries: int = 128, ways: int = 4, *rest: Any, **options: Any
) -> pd.DataFrame:
    return qemu_counts(argv, tlb=TlbModel(entries, ways, *rest), **options)


def aliases(
    argv: list[str], stores: int = 42, window: int | None = None, **options: Any
) -> pd.DataFrame:
    return qemu_counts(argv, store_buffer=StoreBufferModel(stores, window), **options)


# --- instruction TLBs --------------------------------------------------------------------------


@needs_x86
@needs_qemu
@pytest.mark.parametrize(("entries", "ways"), [(16, 4), (8, 8), (13, 13), (24, 3), (64, 4)])
def test_misses_are_those_of_the_reference(tmp_path: Path, entries: int, ways: int) -> None:
    program = assemble("sim_pages", tmp_path, PAGES=20, ROUNDS=7)
    walked = [FIRST_PAGE, *[FIRST_PAGE + 1 + page for page in range(20)] * 7]
    found = counts(itlb_misses([program], entries, ways))
    misses = sum(tlb_misses(walked, entries, ways))
    assert found == {"instructions": 2 + 7 * 21 + 3, "iTLB misses": misses}


@needs_x86
@needs_qemu
def test_an_instruction_across_a_border_fetches_from_both_pages(tmp_path: Path) -> None:
    program = assemble("sim_pages", tmp_path, PAGES=20, ROUNDS=7, CROSSING=1)
    walked = [FIRST_PAGE + page for page in range(21)] * 7
    found = counts(itlb_misses([program], 20, 20))
    assert found["iTLB misses"] == sum(tlb_misses(walked, 20, 20)) == 7 * 21
    assert found["instructions"] == 2 + 7 * 21 + 3


@needs_x86
@needs_qemu
def test_second_level_and_large_pages(tmp_path: Path) -> None:
    program = assemble("sim_pages", tmp_path, PAGES=20, ROUNDS=7)
    found = counts(itlb_misses([program], 8, 8, 4096, (32, 4)))
    assert found["iTLB misses"] == 1 + 7 * 20
    assert found["iTLB walks"] == 21  # each page once: the second level holds them all
    large = counts(itlb_misses([program], 8, 8, 1 << 21))
    assert large["iTLB misses"] == 1


@pytest.mark.parametrize(
    ("entries", "ways", "page_bytes", "second_level"),
    [
        (64, 128, 4096, None),
        (64, 0, 4096, None),
        (0, 0, 4096, None),
        (64, 5, 4096, None),
        (96, 4, 4096, None),  # 24 sets
        (64, 4, 4095, None),
        (64, 4, 0, None),
        (64, 4, 4096, (96, 1)),
        (1 << 21, 4, 4096, None),
    ],
)
def test_geometry_that_is_not_possible(
    entries: int, ways: int, page_bytes: int, second_level: tuple[int, int] | None
) -> None:
    with pytest.raises(UserError, match=r"power of two|not possible"):
        TlbModel(entries, ways, page_bytes, second_level)


def test_itlb_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    zen4 = {(0x80000005, 0): (0xFF48FF40, 0xFF48FF40, 0, 0), (0x80000006, 0): (0, 0x42004200, 0, 0)}
    amd = (1, 0x68747541, 0x444D4163, 0x69746E65)  # AuthenticAMD
    leaves = zen4 | {(0x0, 0): amd, (0x1, 0): (0x00A10F11, 0, 0, 0)}
    monkeypatch.setattr(cpuid, "leaves_or_reason", lambda: (leaves, ""))
    assert itlb_of_this_machine() == TlbModel(64, 64, 4096, (512, 4))
    assert itlb_of_this_machine(1 << 30) is None
    monkeypatch.setattr(cpuid, "leaves_or_reason", lambda: ({}, "no x86"))
    assert itlb_of_this_machine() is None


# --- 4K aliases --------------------------------------------------------------------------------


def expected_aliases(distance: int, fill: int, rounds: int, stores: int, window: int) -> int:
    """Of sim_aliases.S."""
    trace, position = [], 2
    for _ in range(rounds):
        trace.append(Access(1024, position, 8, True))
        trace += [Access(3072, position + 1 + i, 4, True) for i in range(fill)]
        trace.append(Access(1024 + distance, position + 1 + fill, 8, False))
        position += 4 + fill
    return sum(aliased(trace, stores, window))


@needs_x86
@needs_qemu
@pytest.mark.parametrize(
    ("distance", "fill", "stores", "window"),
    [
        (4096, 0, 42, None),  # an alias every time
        (8192, 41, 42, None),  # the store is the oldest that is still there
        (4096, 42, 42, None),  # it has just gone
        (4096, 9, 42, 10),
        (4096, 10, 42, 10),  # too long ago
        (4096 + 7, 0, 42, None),  # overlaps in one byte
        (4096 + 8, 0, 42, None),
        (4096 - 7, 0, 42, None),
        (4096 - 8, 0, 42, None),
        (0, 0, 42, None),  # the store's own value: forwarded
        (4, 0, 42, None),
    ],
)
def test_aliases_are_those_of_the_reference(
    tmp_path: Path, distance: int, fill: int, stores: int, window: int | None
) -> None:
    program = assemble("sim_aliases", tmp_path, N=100, DISTANCE=distance, FILL=fill)
    found = counts(aliases([program], stores, window))
    expected = expected_aliases(distance, fill, 100, stores, window or 0)
    assert expected in (0, 100)
    assert found == {
        "instructions": 2 + 100 * (4 + fill) + 3,
        "loads": 100,
        "stores": 100 * (1 + fill),
        "4K aliases": expected,
    }


@needs_x86
@needs_qemu
def test_the_stack_moves_with_the_environment(tmp_path: Path) -> None:
    """And nothing else moves it: no address-space randomisation."""
    program = assemble("sim_stack", tmp_path)

    def slot(length: int) -> int:
        (row,) = aliases([program], by="place", environment={"A": "x" * length}).itertuples()
        assert row.simulated_count == 1
        return (int(str(row.place), 16) - entry - 4) // 8  # the first instruction has 4 bytes

    entry = read_elf(Path(program)).segments[1].address
    base = slot(40)
    assert slot(40) == base
    assert [(base - slot(40 + more)) % 256 for more in (16, 160, 2048)] == [1, 10, 128]


@pytest.mark.parametrize(("stores", "window"), [(0, None), (-1, None), (1 << 21, None), (8, 0)])
def test_store_buffer_that_is_not_possible(stores: int, window: int | None) -> None:
    with pytest.raises(UserError, match="store buffer"):
        aliases(["true"], stores, window)


# --- programs and emulators that fail ----------------------------------------------------------


@needs_x86
@needs_qemu
def test_a_program_that_fails(tmp_path: Path) -> None:
    program = assemble("sim_ends", tmp_path, ENDING="nop", STATUS=3)
    with pytest.raises(
        SimulatorError, match="sim_ends under qemu-x86_64 ended with exit"
    ) as caught:
        itlb_misses([program])
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.tail) == (str(caught.value), "")


@needs_x86
@needs_qemu
def test_a_program_that_does_not_end(tmp_path: Path) -> None:
    program = assemble("sim_ends", tmp_path, ENDING="jmp _start", STATUS=0)
    with pytest.raises(MeasurementError, match=r"did not end within 0\.3 s"):
        itlb_misses([program], timeout_s=0.3)


@needs_x86
@needs_qemu
def test_a_program_that_is_replaced_by_another() -> None:
    with pytest.raises(MeasurementError, match=r"exec\)"):
        itlb_misses(["env", "true"])


def test_no_such_program(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no program 'perflib-absent'"):
        itlb_misses(["perflib-absent"])
    with pytest.raises(UserError, match="empty"):
        itlb_misses([])
    with pytest.raises(UserError, match="no program 'true'"):
        itlb_misses(["true"], environment={"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"#!/bin/sh\n", "is a script"),
        (b"", "no 64-bit"),
        (b"\x7fELF\x01\x01" + bytes(58), "no 64-bit"),
        (b"\x7fELF\x02\x01" + bytes(12) + b"\x15\x00" + bytes(44), "machine 21"),
    ],
)
def test_what_is_no_program_for_it(tmp_path: Path, content: bytes, match: str) -> None:
    program = tmp_path / "program"
    program.write_bytes(content)
    program.chmod(0o700)
    with pytest.raises(UserError, match=match):
        itlb_misses([str(program)])


@needs_x86
@needs_qemu
def test_a_damaged_program(tmp_path: Path) -> None:
    program = Path(assemble("sim_ends", tmp_path, ENDING="nop", STATUS=0))
    program.write_bytes(program.read_bytes()[:80])
    with pytest.raises(MeasurementError, match="nothing is counted"):
        itlb_misses([str(program)])


def test_unknown_grouping() -> None:
    with pytest.raises(UserError, match="did you mean 'symbol'"):
        qemu_counts(["true"], by="symbols")  # type: ignore[arg-type]


@needs_x86
def test_qemu_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = assemble("sim_ends", tmp_path, ENDING="nop", STATUS=0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"qemu-x86_64 is not on PATH.*apt-get install qemu-user"):
        itlb_misses([program])


@needs_x86
@pytest.mark.parametrize(
    ("version", "says", "match"),
    [
        ("10.0.13", "qemu: unknown option 'plugin'", "built without plugins"),
        (
            "99.1.0",
            "plugin requires API version 2, but this QEMU supports only a minimum version of 9",
            "another version of the plugin API",
        ),
        ("7.2.0", "something else", "something else"),
    ],
)
def test_another_qemu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, says: str, match: str
) -> None:
    program = assemble("sim_ends", tmp_path, ENDING="nop", STATUS=0)
    script = f'[ "$1" = --version ] && echo "qemu-x86_64 version {version} (x)" && exit 0\n'
    fake_tool(tmp_path, "qemu-x86_64", f'{script}echo "{says}" >&2; exit 1')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(MeasurementError, match=match):
        itlb_misses([program])


def test_the_plugin_says_which_api_it_is_for() -> None:
    from perflib.instruments.simulators.qemu import _plugin

    assert _plugin("qemu_counters", "qemu-x86_64 7.2.22") == str(
        kernels.build("qemu_counters").library
    )
    newer = str(kernels.build("qemu_counters", variant="api2").library)
    assert _plugin("qemu_counters", "qemu-x86_64 10.0.2") == newer
