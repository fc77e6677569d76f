"""Which allocators there are: found where they lie, refused with a reason, chosen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perflib.machine.libraries import allocators as module
from perflib.machine.libraries.allocators import Allocator, allocators, chosen, refusal
from perflib.model.errors import UserError

FOLDER = "usr/lib/x86_64-linux-gnu"


def header(machine: int | None = None, bits: int = 2, kind: int = 3) -> bytes:
    """An ELF header; by default of a library for the processor that this Python is built for."""
    mine = Path(sys.executable).resolve().read_bytes()[:64]
    if machine is None:
        return mine[:16] + kind.to_bytes(2, sys.byteorder) + mine[18:]
    return (
        b"\x7fELF" + bytes([bits, 1, 1]) + bytes(9) + kind.to_bytes(2, "little")
        + machine.to_bytes(2, "little") + bytes(44)
    )  # fmt: skip


def lay(path: Path, content: bytes | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header() if content is None else content)
    return path


def found(root: Path, environment: dict[str, str] | None = None) -> dict[str, str]:
    return {one.name: one.path for one in allocators(root, environment or {})}


# --- looking -------------------------------------------------------------------------------------


def test_the_c_librarys_own_is_always_there(tmp_path: Path) -> None:
    assert allocators(tmp_path, {}) == [Allocator("glibc", "")]


def test_usual_folders_are_searched_and_other_builds_left_out(tmp_path: Path) -> None:
    for name in (
        "libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libtcmalloc_minimal_debug.so.4",
        "libmimalloc-secure.so.2", "libmimalloc.so.2.txt", "libhoarder.so", "libm.so.6",
    ):  # fmt: skip
        lay(tmp_path / FOLDER / name)
    lay(tmp_path / "usr/local/lib/libhoard.so")
    assert found(tmp_path) == {
        "glibc": "",
        "tcmalloc": str(tmp_path / FOLDER / "libtcmalloc_minimal.so.4"),
        "jemalloc": str(tmp_path / FOLDER / "libjemalloc.so.2"),
        "hoard": str(tmp_path / "usr/local/lib/libhoard.so"),
    }


def test_the_users_folders_come_first(tmp_path: Path) -> None:
    lay(tmp_path / FOLDER / "libjemalloc.so.2")
    own = lay(tmp_path / "own/libjemalloc.so.1")
    conda = lay(tmp_path / "conda/lib/libmimalloc.so")
    environment = {
        "LD_LIBRARY_PATH": f"{tmp_path / 'absent'}:{own.parent}:",
        "CONDA_PREFIX": str(tmp_path / "conda"),
    }
    assert found(tmp_path, environment) == {
        "glibc": "", "jemalloc": str(own), "mimalloc": str(conda),
    }  # fmt: skip


def test_one_for_another_processor_is_passed_over(tmp_path: Path) -> None:
    lay(tmp_path / FOLDER / "libjemalloc.so.2", header(machine=21))
    mine = lay(tmp_path / "usr/lib64/libjemalloc.so.2")
    assert found(tmp_path)["jemalloc"] == str(mine)


def test_a_link_that_leads_nowhere_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / "libjemalloc.so.2").symlink_to("libjemalloc.so.2.0")
    assert "jemalloc" not in found(tmp_path)


def test_what_the_linker_knows_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = lay(tmp_path / "odd/libhoard.so")
    said = f"2 libs found in cache\n\tlibhoard.so (libc6,x86-64) => {library}\n\tnonsense\n"

    def answers(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(argv, 0, said, "")

    monkeypatch.setattr(subprocess, "run", answers)
    monkeypatch.setattr(shutil, "which", lambda name, **_: name)
    assert module._linker_knows() == [library]
    monkeypatch.setattr(shutil, "which", lambda _name, **_: None)
    assert module._linker_knows() == []


# --- refusing ------------------------------------------------------------------------------------


def test_this_machines_c_library_can_be_preloaded() -> None:
    maps = Path("/proc/self/maps").read_text().splitlines()
    (libc,) = {
        line.split()[-1] for line in maps if line.endswith((".so", ".so.6")) and "libc" in line
    }
    assert refusal(libc) == ""


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"no library", "is no shared library (it does not begin as an ELF file does)"),
        (b"", "is no shared library"),
        (header(machine=21), "is for POWER, and programs here are for "),
        (header(machine=3, bits=1), "is for x86 (32 bits), and programs here are for "),
        (header(machine=62, bits=1), "is for x86-64 with 32 bits, and programs here are for "),
        (header(machine=4711), "is for machine 4711 of the ELF list, and programs"),
        (header(kind=1), "is an ELF file, but no shared library"),
    ],
)
def test_what_cannot_be_preloaded_is_refused(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = lay(tmp_path / "libmine.so", content)
    assert sentence in refusal(path)
    with pytest.raises(UserError, match=r"^allocators: .*libmine\.so"):
        chosen([str(path)])


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "absent.so") == f"there is no file {str(tmp_path / 'absent.so')!r}"
    assert "there is no file" in refusal(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_refused(tmp_path: Path) -> None:
    path = lay(tmp_path / "libmine.so")
    path.chmod(0)
    assert "cannot be read: Permission denied" in refusal(path)


# --- choosing ------------------------------------------------------------------------------------


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """glibc and jemalloc, wherever the tests run."""
    monkeypatch.setattr(
        module, "allocators", lambda: [Allocator("glibc"), Allocator("jemalloc", "somewhere")]
    )
    return ["glibc", "jemalloc"]


def test_all_goes_on_with_those_that_are_here_and_names_the_others(two: list[str]) -> None:
    some, absent = chosen(["all"])
    assert [one.name for one in some] == two
    assert [sentence.partition(" ")[0] for sentence in absent] == ["tcmalloc", "mimalloc", "hoard"]
    assert "apt-get install libtcmalloc-minimal4" in absent[0]
    assert "apt-get install libmimalloc2.0" in absent[1]


@pytest.mark.usefixtures("two")
def test_nothing_left_and_wrong_names_are_refused() -> None:
    with pytest.raises(UserError, match="allocators: mimalloc is not installed: 'apt-get install"):
        chosen(["mimalloc"])
    with pytest.raises(UserError, match="unknown allocator 'jmalloc': did you mean 'jemalloc'"):
        chosen(["glibc", "jmalloc"])


@pytest.mark.usefixtures("two")
def test_a_path_is_named_after_its_file(tmp_path: Path) -> None:
    first, second = lay(tmp_path / "a/libmine.so.3"), lay(tmp_path / "b/libmine.so")
    jemalloc = lay(tmp_path / "libjemalloc.so.9")
    paths = [str(first), str(second), str(first), str(jemalloc)]
    some, absent = chosen(["glibc", *paths])
    assert some == [
        Allocator("glibc"), Allocator("mine", paths[0]), Allocator("mine-2", paths[1]),
        Allocator("jemalloc-2", paths[3]),
    ]  # fmt: skip
    assert absent == []


def test_the_path_of_one_that_is_found_is_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = lay(tmp_path / "libjemalloc.so.2")
    link = tmp_path / "libmine.so"
    link.symlink_to(real)
    jemalloc = Allocator("jemalloc", str(real))
    monkeypatch.setattr(module, "allocators", lambda: [Allocator("glibc"), jemalloc])
    assert chosen([str(link), "jemalloc", str(real)]) == ([jemalloc], [])


def test_a_path_must_be_absolute() -> None:
    with pytest.raises(UserError, match=r"'lib/libmine\.so' is not absolute: write '/"):
        chosen(["lib/libmine.so"])
