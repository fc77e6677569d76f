from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.instruments.counters.data_source import decode
from perflib.instruments.counters.precise import (
    Precise,
    by_source,
    can,
    parse,
    read,
    record_argv,
    script_argv,
)
from perflib.model.errors import UserError
from tests.machine import trees

DEVICES = "sys/bus/event_source/devices"
PEBS = Precise(True, "PEBS", "cpu", "")
IBS = Precise(True, "IBS", "ibs_op", "")

# Written as perf's builtin-script.c prints them; no such machine could be asked. The data sources
# are quoted in patches to the kernel's mailing list, with what perf made of them.
TEXT = """\
# ========
 kv 2 threads  4242/4243  [003] 12345.678901234: cpu/mem-loads,ldlat=30/P:     7f1234567890      \
10668100842 |OP LOAD|LVL L3 or L3 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A              57 \
    55d0c0ffee00 f<int, (anonymous namespace)::T>+0x1c (/opt/a (1)/liba.so (deleted))       1234abcd
              kv  4242/4242  [000] 12345.678901300: cpu/mem-loads,ldlat=30/P: ffff888012345678     \
10650100842 |OP LOAD|LVL L3 or L3 hit|SNP None|TLB L2 miss|LCK No|BLK  N/A                  144 \
ffffffff81000000 copy_user+0xa ([kernel.kallsyms])               0

              kv  4242/4242  [011] 12345.700000:   ibs_op//:          601040        288100144 \
|OP STORE|LVL L1 hit|SNP None|TLB Walker hit|LCK No|BLK  N/A               0           401136 \
[unknown] (/opt/kv)
              kv    -1/4242  [011] 12345.700001:   ibs_op//:          601080         88000182 \
|OP LOAD|LVL L1 miss|SNP N/A|TLB Walker hit|LCK No|BLK  N/A               9           401136 \
main+0x6 (/opt/kv)
"""


@pytest.mark.parametrize(
    ("number", "op", "level", "hit", "snoop", "tlb", "lock"),
    [
        (0x68100142, "load", "L1", "hit", "none", "L1 or L2 hit", "no"),
        (0x10668100842, "load", "L3", "hit", "none", "L1 or L2 hit", "no"),
        (0x11868100242, "load", "line fill buffer", "hit", "none", "L1 or L2 hit", "no"),
        (0x10650100842, "load", "L3", "hit", "none", "L2 miss", "no"),
        (0x10468100442, "load", "L2", "hit", "none", "L1 or L2 hit", "no"),
        (0x88000182, "load", "L1", "miss", "not known", "walker hit", "no"),
        (0x8688000842, "load", "L3", "hit", "peer", "walker hit", "no"),
        (0x288100144, "store", "L1", "hit", "none", "walker hit", "no"),
        (0x288800142, "load", "L1", "hit", "hit modified", "walker hit", "no"),
        (0x1E05080021, *["not known"] * 6),
        (0, *["not known"] * 5, "no"),
    ],
)
def test_data_sources_that_perf_was_seen_to_print(
    number: int, op: str, level: str, hit: str, snoop: str, tlb: str, lock: str
) -> None:
    found = decode(number)
    assert (found.op, found.level, found.hit) == (op, level, hit)
    assert (found.snoop, found.tlb, found.lock) == (snoop, tlb, lock)


@pytest.mark.parametrize(
    ("number", "remote", "hops", "level"),
    [
        (1, 0, 0, "L1"),
        (3, 1, 0, "remote cache"),
        (11, 1, 1, "cache of another core"),
        (11, 1, 3, "remote cache"),
        (13, 0, 0, "local RAM"),
        (13, 1, 2, "remote RAM"),
        (9, 1, 0, "remote CXL"),
        (7, 0, 0, "L0"),
        (15, 0, 0, "remote RAM"),  # then the bits speak
    ],
)
def test_the_level_number_goes_before_the_bits(
    number: int, remote: int, hops: int, level: str
) -> None:
    bits = 2 << 5 | 0x100 << 5  # hit, remote RAM one hop off
    assert decode(2 | bits | number << 33 | remote << 37 | hops << 43).level == level


def test_locks_and_blocks() -> None:
    assert decode(2 << 24).lock == "yes"
    assert decode(1 << 24).lock == "not known"
    assert decode(6 << 40).blocked == "data or address"
    assert decode(1 << 38 | 4 << 19).snoop == "hit or forwarded"


@given(st.integers(0, (1 << 64) - 1))
def test_every_number_has_words(number: int) -> None:
    assert all(decode(number).__dict__.values())


# --- text to table -------------------------------------------------------------------------------


def test_a_recording_becomes_a_table(tmp_path: Path) -> None:
    path = tmp_path / "mem.txt"
    path.write_text(TEXT)
    found = read(path)
    assert found.unread == []
    table = found.table
    assert list(table["time_ns"]) == [
        12345678901234,
        12345678901300,
        12345700000000,
        12345700001000,
    ]
    assert list(table["comm"]) == ["kv 2 threads", "kv", "kv", "kv"]
    assert list(table["pid"]) == [4242, 4242, 4242, -1]
    assert list(table["cpu"]) == [3, 0, 11, 11]
    assert list(table["address"]) == [0x7F1234567890, 0xFFFF888012345678, 0x601040, 0x601080]
    assert list(table["physical_address"]) == [0x1234ABCD, 0, 0, 0]
    assert list(table["ip"])[1] == 0xFFFFFFFF81000000
    assert list(table["symbol"]) == [
        "f<int, (anonymous namespace)::T>",
        "copy_user",
        "[unknown]",
        "main",
    ]
    assert list(table["offset_bytes"]) == [0x1C, 0xA, -1, 6]
    assert list(table["object"]) == [
        "/opt/a (1)/liba.so (deleted)",
        "[kernel.kallsyms]",
        "/opt/kv",
        "/opt/kv",
    ]
    assert list(table["latency_cycles"]) == [57, 144, 0, 9]
    assert list(table["op"]) == ["load", "load", "store", "load"]
    assert list(table["level"]) == ["L3", "L3", "L1", "L1"]
    assert list(table["hit"]) == ["hit", "hit", "hit", "miss"]
    assert list(table["tlb"]) == ["L1 or L2 hit", "L2 miss", "walker hit", "walker hit"]
    assert table["address"].dtype == np.uint64
    assert isinstance(table["symbol"].dtype, pd.CategoricalDtype)


def test_the_summary_by_source() -> None:
    summary = by_source(parse(TEXT.splitlines()).table)
    rows = [tuple(row) for row in summary[["op", "level", "hit", "samples", "share"]].to_numpy()]
    assert rows[0] == ("load", "L3", "hit", 2, 0.5)
    assert set(rows[1:]) == {("load", "L1", "miss", 1, 0.25), ("store", "L1", "hit", 1, 0.25)}
    medians = summary.set_index("op")["median_latency_cycles"]
    assert list(medians["load"]) == [100.5, 9.0]
    assert np.isnan(medians["store"])
    assert by_source(parse([]).table).empty


def test_lines_that_are_no_sample_are_counted_and_shown() -> None:
    lines = TEXT.splitlines()
    cut = lines[1][:150]
    found = parse([lines[0], cut, "\0\x01 binary", lines[1], "kv " * 20_000])
    assert len(found.table) == 1
    assert found.unread_count == 3
    assert [number for number, _ in found.unread] == [2, 3, 5]
    assert max(len(text) for _, text in found.unread) <= 200
    assert len(parse(["nothing"] * 1000).unread) == 100


@pytest.mark.parametrize(
    ("old", "new"),
    [("4242/4243", "99999999999/1"), ("12345.6", "99999999999999999999.6"), ("0x1c", "0xg")],
)
def test_numbers_that_cannot_be_are_not_read(old: str, new: str) -> None:
    line = TEXT.splitlines()[1]
    assert old in line
    assert parse([line]).unread_count == 0
    found = parse([line.replace(old, new)])
    assert found.unread_count == 1 or found.table["offset_bytes"][0] == -1


@given(st.integers(0, len(TEXT)), st.integers(0, len(TEXT)), st.text(max_size=5))
def test_damaged_text_is_read_or_counted(begin: int, end: int, noise: str) -> None:
    text = TEXT[:begin] + noise + TEXT[end:]
    lines = text.split("\n")
    found = parse(lines)
    said = [line for line in lines if line.strip() and not line.startswith("#")]
    assert len(found.table) + found.unread_count == len(said)


def test_a_line_made_to_backtrack_ends() -> None:
    evil = "a 1/1 [1] 1.1: " * 500
    assert parse([evil, f"{evil}e: 1 1 |" + " 1 1" * 200]).unread_count == 2


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read(tmp_path / "none")


@pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")
def test_this_machines_perf_prints_what_is_read_here(tmp_path: Path) -> None:
    """The CPU clock has no data source; perf prints the fields all the same."""
    data = tmp_path / "perf.data"
    job = ["--", "sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"]
    argv = record_argv(data, job, precise=PEBS)
    place = argv.index("-e") + 1
    argv[place] = "cpu-clock"
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"perf may not record here: {done.stderr[-200:]}")
    printed = subprocess.run(script_argv(data), capture_output=True, text=True, check=True)
    found = parse(printed.stdout.splitlines())
    assert found.unread == []
    assert len(found.table) > 0
    assert set(found.table["op"]) == {"not known"}
    assert set(found.table["event"]) == {"cpu-clock"}
    assert (found.table["ip"] > 0).all()
    assert found.table["time_ns"].is_monotonic_increasing


# --- what can be done, and how -------------------------------------------------------------------


def missing(_: str) -> None:
    return None


def found(name: str) -> str:
    return f"/usr/bin/{name}"


def nobody() -> int:
    return 1000


def root() -> int:
    return 0


MEM_LOADS = {f"{DEVICES}/cpu/events/mem-loads": "event=0xcd,umask=0x1,ldlat=3"}
IBS_OP = {f"{DEVICES}/ibs_op/type": "11"}
PARANOID = "proc/sys/kernel/perf_event_paranoid"
GUEST = trees.cpuinfo("GenuineIntel", 6, 143, 8, "a guest", "fpu hypervisor")


@pytest.mark.parametrize(
    ("files", "method", "pmu"),
    [
        (MEM_LOADS, "PEBS", "cpu"),
        ({f"{DEVICES}/cpu_core/events/mem-loads": "x"}, "PEBS", "cpu_core"),
        (IBS_OP, "IBS", "ibs_op"),
    ],
)
def test_a_machine_that_can(tmp_path: Path, files: dict[str, str], method: str, pmu: str) -> None:
    trees.write(tmp_path, files)
    answer = can(tmp_path, found, root)
    assert (answer.available, answer.method, answer.pmu) == (True, method, pmu)
    assert method in answer.reason


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"proc/cpuinfo": GUEST}, "hypervisor"),
        ({"proc/version": ""}, "none of Intel's PEBS and AMD's IBS"),
        (MEM_LOADS | {PARANOID: "4"}, "sysctl kernel.perf_event_paranoid=2"),
        (IBS_OP | {PARANOID: "2"}, "sysctl kernel.perf_event_paranoid=1"),
    ],
)
def test_a_machine_that_cannot_says_why(tmp_path: Path, files: dict[str, str], words: str) -> None:
    trees.write(tmp_path, files)
    answer = can(tmp_path, found, nobody)
    assert not answer.available
    assert words in answer.reason
    with pytest.raises(UserError) as caught:
        record_argv(tmp_path / "out", ["-a"], precise=answer)
    assert words in str(caught.value)


def test_perf_itself_may_be_missing(tmp_path: Path) -> None:
    assert "the command perf is missing" in can(trees.write(tmp_path, MEM_LOADS), missing).reason


def test_paranoia_does_not_keep_root_out(tmp_path: Path) -> None:
    trees.write(tmp_path, MEM_LOADS | {PARANOID: "4"})
    assert can(tmp_path, found, root).available


def test_this_machine_answers_with_a_sentence() -> None:
    answer = can()
    assert answer.reason
    assert answer.available is bool(answer.method and "sampled by" in answer.reason)


def events(argv: list[str]) -> list[str]:
    return [after for before, after in pairwise(argv) if before == "-e"]


def test_what_perf_is_asked_to_record(tmp_path: Path) -> None:
    out = tmp_path / "perf.data"
    plain = record_argv(out, ["-p", "7"], root=tmp_path, precise=PEBS)
    assert events(plain) == ["cpu/mem-loads,ldlat=30/P"]
    assert plain[-2:] == ["-p", "7"]
    assert plain[plain.index("-o") + 1] == str(out)
    assert {"-W", "-d", "--sample-cpu"} <= set(plain)
    assert "--phys-data" not in plain
    both = record_argv(
        out, ["-a"], kind="both", latency_cycles=50, physical=True, root=tmp_path, precise=PEBS
    )
    assert events(both) == ["cpu/mem-loads,ldlat=50/P", "cpu/mem-stores/P"]
    assert "--phys-data" in both
    stores = record_argv(out, ["-a"], kind="stores", root=tmp_path, precise=PEBS)
    assert events(stores) == ["cpu/mem-stores/P"]
    assert events(record_argv(out, ["-a"], root=tmp_path, precise=IBS)) == ["ibs_op//"]
    trees.write(tmp_path, {f"{DEVICES}/cpu/events/mem-loads-aux": "event=0x03,umask=0x82"})
    newer = record_argv(out, ["-a"], root=tmp_path, precise=PEBS)
    assert events(newer) == ["{cpu/mem-loads-aux/,cpu/mem-loads,ldlat=30/}:P"]


def test_what_perf_is_asked_to_print() -> None:
    assert "phys_addr" not in script_argv(Path("x"))[-1]
    assert script_argv(Path("x"), physical=True)[-1].endswith(",phys_addr")


@pytest.mark.parametrize("latency", [0, 65536])
def test_a_latency_out_of_range(latency: int) -> None:
    with pytest.raises(UserError, match="1 to 65535"):
        record_argv(Path("x"), [], latency_cycles=latency, precise=PEBS)


def test_a_kind_that_is_none() -> None:
    with pytest.raises(UserError, match="did you mean 'loads'"):
        record_argv(Path("x"), [], kind="load", precise=PEBS)  # type: ignore[arg-type]
