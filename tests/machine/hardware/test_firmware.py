"""Firmware and memory modules, from files as a server has them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from perflib.machine.hardware.firmware import firmware


def device(mib: int, kind: int = 0x22, speed: int = 4800) -> bytes:
    """A memory device of SMBIOS 3: 0x28 bytes and a text."""
    body = bytearray(0x28)
    body[0:4] = struct.pack("<BBH", 17, 0x28, 0x1100)
    size, extended = (0x7FFF, mib) if mib >= 0x7FFF else (mib, 0)
    struct.pack_into("<H", body, 0x0C, size)
    body[0x12] = kind
    struct.pack_into("<H", body, 0x15, 5600)
    struct.pack_into("<I", body, 0x1C, extended)
    struct.pack_into("<H", body, 0x20, speed)
    return bytes(body) + b"P0 CHANNEL A\0\0"


BIOS = struct.pack("<BBH", 0, 0x18, 0) + bytes(0x14) + b"vendor\x001.2\0\0"
END = struct.pack("<BBH", 127, 4, 0xFEFF) + b"\0\0"


def write_table(root: Path, table: bytes) -> None:
    place = root / "sys/firmware/dmi/tables"
    place.mkdir(parents=True)
    (place / "DMI").write_bytes(table)


def test_versions_and_modules(tmp_path: Path) -> None:
    place = tmp_path / "sys/class/dmi/id"
    place.mkdir(parents=True)
    for name, value in {"bios_version": "2.19.1", "bios_date": "06/14/2023"}.items():
        (place / name).write_text(value + "\n")
    write_table(tmp_path, BIOS + device(65536) + device(65536) + device(0) + END)
    found = firmware(tmp_path)
    assert found["bios_version"] == "2.19.1"
    assert found["bios_date"] == "06/14/2023"
    assert found["board"] is None
    assert found["memory_modules"] == "2 x 64 GiB DDR5 4800 MT/s, 1 empty"


@pytest.mark.parametrize(
    ("one", "shown"),
    [
        (device(16384, 0x1A, 2666), "1 x 16 GiB DDR4 2666 MT/s"),
        (device(512, 0x18, 0), "1 x 512 MiB DDR3 5600 MT/s"),  # as built, where not configured
        (device(1000, 0x02, 0xFFFF), "1 x 1000 MiB memory"),
        (device(0), "1 empty"),
    ],
    ids=str,
)
def test_sizes_types_and_speeds(tmp_path: Path, one: bytes, shown: str) -> None:
    write_table(tmp_path, one + END)
    assert firmware(tmp_path)["memory_modules"] == shown


@pytest.mark.parametrize(
    "table", [b"", b"\x11", b"\x11\x00\x00\x00", device(4096)[:-2], b"\xff" * 100], ids=repr
)
def test_a_table_that_is_cut_off_or_damaged_is_no_error(tmp_path: Path, table: bytes) -> None:
    write_table(tmp_path, table)
    found = firmware(tmp_path)["memory_modules"]
    assert found is None or "4 GiB" in found


def test_a_machine_without_smbios(tmp_path: Path) -> None:
    assert set(firmware(tmp_path).values()) == {None}
