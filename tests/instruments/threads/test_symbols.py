from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from perflib.instruments.threads.symbols import Mapping, Symbols, read_maps
from tests.instruments.threads.programs import compiled

SOURCE = Path(__file__).with_name("symbols.c").read_text()
NAMES = ("inner", "outer", "main", "zeroed", "filled", "hidden", "strlen")


def run(program: Path) -> tuple[dict[str, int], str]:
    text = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    first, maps = text.split("\n", 1)
    return {n: int(word, 16) for n, word in zip(NAMES, first.split(), strict=True)}, maps


@pytest.mark.parametrize("flags", [("-pie", "-fPIE"), ("-no-pie",), ("-static",)], ids=str)
def test_code_and_data_have_the_names_of_the_source(tmp_path: Path, flags: tuple[str, ...]) -> None:
    at, maps = run(compiled(tmp_path, SOURCE, *flags))
    symbols = Symbols.from_maps(maps)
    for name in ("inner", "main"):
        assert symbols.name(at[name]) == name
        assert symbols.name(at[name] + 3) == name
    assert symbols.name(at["outer"]) in ("outer", "alias")
    assert symbols.object_at(at["zeroed"] + 4999) == ("zeroed", 4999)  # has no bytes in the file
    assert symbols.object_at(at["filled"] + 4) == ("filled", 4)
    assert symbols.object_at(at["hidden"]) == ("hidden", 0)
    assert symbols.object_at(at["main"]) is None
    assert symbols.object_at(at["filled"] + 16) != ("filled", 16)  # which is behind its end


def test_what_is_stripped_is_named_by_file_and_address(tmp_path: Path) -> None:
    program = compiled(tmp_path, SOURCE, "-s", "-no-pie", name="a job")
    at, maps = run(program)
    symbols = Symbols.from_maps(maps)
    assert symbols.name(at["main"]) == f"a job+{at['main']:#x}"
    assert symbols.object_at(at["filled"]) is None


def test_a_deleted_file_is_not_read_from_what_has_its_name_now(tmp_path: Path) -> None:
    program = compiled(tmp_path, SOURCE)
    at, maps = run(program)
    deleted = maps.replace(str(program), f"{program} (deleted)")
    assert Symbols.from_maps(deleted).name(at["main"]).startswith("program+0x")
    gone = maps.replace(str(program), f"{program}-gone")
    assert Symbols.from_maps(gone).name(at["main"]).startswith("program-gone+0x")


def test_addresses_outside_of_files() -> None:
    symbols = Symbols([Mapping(0x1000, 0x2000, 0, ""), Mapping(0x3000, 0x4000, 0, "[vdso]")])
    assert symbols.name(0x1004) == "0x1004"
    assert symbols.name(0x3004) == "[vdso]+0x4"
    assert symbols.name(0x9000) == "0x9000"
    assert symbols.name(0x2000) == Symbols([]).name(0x2000) == "0x2000"


def test_names_of_cpp_are_those_of_the_source(tmp_path: Path) -> None:
    source = "int _ZN3job4waitEi(int x) { return x; } int _Znonsense(void) { return 0; }"
    library = compiled(tmp_path, source, "-shared", "-fPIC", name="cpp.so")
    nm = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    at = {line.split()[2]: int(line.split()[0], 16) for line in nm.splitlines() if " T " in line}
    symbols = Symbols([Mapping(0x10000000, 0x10005000, 0, str(library))])
    named = symbols.name(0x10000000 + at["_ZN3job4waitEi"])
    assert named in ("job::wait(int)", "_ZN3job4waitEi")  # the latter without C++'s library
    assert symbols.name(0x10000000 + at["_Znonsense"]) == "_Znonsense"


def test_maps_of_this_very_process() -> None:
    rows = read_maps(Path("/proc/self/maps").read_text())
    assert all(row.start < row.end for row in rows)
    assert any(row.path == os.path.realpath("/proc/self/exe") for row in rows)
    assert read_maps("") == []
    assert read_maps("7f-80 r-xp 0 0:0 0") == [Mapping(0x7F, 0x80, 0, "")]
    assert read_maps("1000-2000 r--p 00000000 fe:00 7   /a\\012b\n")[0].path == "/a\nb"
