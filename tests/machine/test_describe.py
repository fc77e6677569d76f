from __future__ import annotations

import os
from pathlib import Path

from perflib.machine.describe import describe
from perflib.machine.doctor.lines import machine_lines
from tests.machine import trees
from tests.machine.dumps import dump


def test_without_cpuid_the_name_still_comes_from_cpuinfo(tmp_path: Path) -> None:
    record = describe(trees.epyc(tmp_path))
    assert record["microarchitecture"] == "Zen 2"
    assert record["tlbs_origin"] == "published for Zen 2"
    assert record["tlbs"][0]["entries"] == 64
    assert "cannot be read" in record["cpuid_missing"]


def test_the_fingerprint_outlives_what_changes_from_day_to_day(tmp_path: Path) -> None:
    trees.haswell_ep(tmp_path)
    before = describe(tmp_path, leaves=dump("haswell_ep"))["fingerprint"]
    trees.write(
        tmp_path,
        {
            "proc/sys/kernel/osrelease": "6.12.0",
            "proc/sys/kernel/hostname": "node02",
            "proc/self/status": "Cpus_allowed_list:\t0-3",
            "proc/meminfo": "MemTotal:       131071000 kB",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        },
    )
    assert describe(tmp_path)["fingerprint"] == before


def test_the_fingerprint_distinguishes_machines(tmp_path: Path) -> None:
    builders = (trees.haswell_ep, trees.epyc, trees.kvm_guest, trees.container)
    found = {describe(build(tmp_path / build.__name__))["fingerprint"] for build in builders}
    assert len(found) == len(builders)


def test_an_arm64_guest_without_firmware(tmp_path: Path) -> None:
    text = "Features\t: fp asimd\nCPU implementer\t: 0x41\nCPU variant\t: 0x4\n"
    text += "CPU part\t: 0xd0c\nCPU revision\t: 1\n"
    board = "linux,dummy-virt\0"
    tree = {"proc/device-tree/model": board, "proc/device-tree/compatible": board}
    record = describe(trees.write(tmp_path, {"proc/cpuinfo": text, **tree}))
    first = next(machine_lines(record))
    assert "linux,dummy-virt, Neoverse N1" in first
    assert "(product unknown; ARM implementer 0x41, part 0xd0c, r4p1)" in first
    assert "\0" not in str(record)


def test_nothing_to_read(tmp_path: Path) -> None:
    record = describe(tmp_path)
    assert record["microarchitecture"].startswith("unknown (")
    assert record["memory_bytes"] is None
    assert record["caches"] == []


def test_this_machine() -> None:
    record = describe()
    assert record["hostname"] == os.uname().nodename
    assert record["kernel"] == os.uname().release
    assert record["memory_bytes"] > 0
    assert record["topology"]["cores"] >= 1
    assert record["fingerprint"] == describe()["fingerprint"]
