"""Programs and libraries: their symbols are pyelftools', and no damage does harm."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from perflib.kernels import compiler
from perflib.machine.libraries.elf import Elf, header, read_elf

SOURCE = """
int filled[4] = {1, 2, 3, 4};
char zeroed[5000];
int _ZN3job4waitEi(int x) { return x; }
static __attribute__((noinline)) int hidden(int x) { return x * filled[0]; }
int shown(int x) { return hidden(x); }
int __shown(int x) __attribute__((alias("shown")));
__asm__(".text\\n.type bare, @function\\nbare: nop\\n nop\\n.type last, @function\\nlast: ret\\n");
"""


def compiled(folder: Path, *flags: str) -> Path:
    library = folder / "small.so"
    line = [compiler()[0], "-shared", "-fPIC", "-O1", *flags, "-x", "c", "-", "-o", str(library)]
    subprocess.run(line, input=SOURCE, text=True, check=True)
    return library


def by_pyelftools(path: Path, kind: str) -> dict[int, set[tuple[int, str]]]:
    """Ends and names of the functions or variables that the file defines, by address."""
    found: dict[int, set[tuple[int, str]]] = {}
    with path.open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        for symbol in table.iter_symbols():
            if symbol["st_info"]["type"] == kind and isinstance(symbol["st_shndx"], int):
                start, name = symbol["st_value"], symbol.name.partition("@")[0]
                found.setdefault(start, set()).add((start + symbol["st_size"], name))
    return found


@pytest.mark.parametrize("stripped", [(), ("-s",)])
def test_symbols_of_a_library_are_those_of_pyelftools(
    tmp_path: Path, stripped: tuple[str, ...]
) -> None:
    path = compiled(tmp_path, *stripped)
    elf = read_elf(path)
    mangled = {"job::wait(int)": "_ZN3job4waitEi"}  # where C++'s own library is installed
    for table, kind in ((elf.code, "STT_FUNC"), (elf.data, "STT_OBJECT")):
        expected = by_pyelftools(path, kind)
        assert [start for start, _, _ in table] == sorted(expected)
        for start, end, name in table:
            unsized = (start, name) in expected[start]  # assembly may not say how long it is
            assert unsized or (end, mangled.get(name, name)) in expected[start]
    names = [name for _, _, name in elf.code]
    assert ("hidden" in names) != bool(stripped)
    assert "shown" in names
    assert "__shown" not in names  # the plainer name of two


def test_segments_are_those_of_pyelftools(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    elf = read_elf(path)
    with path.open("rb") as file:
        whole = ELFFile(file)
        mapped = [s for s in whole.iter_segments() if s["p_type"] == "PT_LOAD"]
    ranges = [(s["p_offset"], s["p_offset"] + s["p_filesz"], s["p_vaddr"]) for s in mapped]
    for offset in range(0, path.stat().st_size, 64):
        found = (to + offset - begin for begin, end, to in ranges if begin <= offset < end)
        assert elf.address(offset) == next(found, None)


def test_a_function_without_a_size_ends_where_the_next_or_its_section_does(tmp_path: Path) -> None:
    code = {name: (start, end) for start, end, name in read_elf(compiled(tmp_path)).code}
    assert code["bare"][1] - code["bare"][0] == 2
    assert code["bare"][1] == code["last"][0]
    assert code["last"][1] >= code["last"][0] + 1


def test_an_address_is_named_with_its_offset(tmp_path: Path) -> None:
    elf = read_elf(compiled(tmp_path))
    start, end, _ = next(row for row in elf.code if row[2] == "shown")
    assert elf.code.at(start) == ("shown", 0)
    assert elf.code.at(end - 1) == ("shown", end - 1 - start)
    assert elf.code.at(0) is None
    assert elf.code.at(1 << 60) is None
    start = next(start for start, _, name in elf.data if name == "zeroed")
    assert elf.data.at(start + 4999) == ("zeroed", 4999)


def test_what_overlaps_a_range_is_what_a_walk_over_all_finds(tmp_path: Path) -> None:
    data = read_elf(compiled(tmp_path)).data
    edges = sorted({edge + step for start, end, _ in data for edge in (start, end)
                    for step in (-1, 0, 1)})  # fmt: skip
    for begin in edges:
        for end in (begin + 1, begin + 64):
            walked = [name for low, high, name in data if low < end and high > begin]
            assert data.within(begin, end) == walked


def test_header() -> None:
    found = header(Path(sys.executable))
    assert found is not None
    with Path(sys.executable).open("rb") as file:
        elf = ELFFile(file)
        assert found.bits == elf.elfclass
        assert (found.order == "little") == elf.little_endian
        assert found.kind in (2, 3)
    assert header(Path(__file__)) is None
    with pytest.raises(OSError, match="it is a device, not a file"):
        header(Path("/dev/null"))


def test_what_is_no_file_of_this_kind_is_empty(tmp_path: Path) -> None:
    narrow = tmp_path / "narrow"
    narrow.write_bytes(b"\x7fELF\x01\x01" + bytes(100))
    for path in (narrow, Path(__file__), tmp_path, tmp_path / "absent"):
        assert read_elf(path) == Elf()
    assert Elf().address(0) is None


def test_files_that_are_cut(tmp_path: Path) -> None:
    whole = Path(shutil.which("env") or "").read_bytes()
    for length in (0, 5, 63, 64, 200, len(whole) - 100):
        path = tmp_path / f"cut-{length}"
        path.write_bytes(whole[:length])
        assert list(read_elf(path).code) == []


def test_damaged_files_are_read_or_empty(tmp_path: Path) -> None:
    whole = compiled(tmp_path).read_bytes()
    headers = len(whole) - 64 * 32
    damage = random.Random(1)
    for number in range(200):
        raw = bytearray(whole)
        for _ in range(damage.choice((1, 2, 5))):
            place = damage.choice((damage.randrange(700), damage.randrange(headers, len(raw))))
            raw[place] = damage.randrange(256)
        path = tmp_path / f"damaged-{number}"
        path.write_bytes(raw)
        elf = read_elf(path)
        for table in (elf.code, elf.data):
            assert all(start <= end and isinstance(name, str) for start, end, name in table)
