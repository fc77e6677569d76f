"""heap_offset.c: a program's own blocks lie so many bytes further, under glibc exactly."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from perflib import kernels
from perflib.machine.libraries.allocators import Allocator, allocators
from perflib.measure.conditions import Conditions
from perflib.measure.launch import command
from tests.kernels.here import launched

LEVELS = (16, 1040, 2080, 3120)
PAGE = 4096
OTHERS = [one for one in allocators() if one.path]
# The compiler may not see what malloc is for; printing a block's address keeps it.
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  void *small = malloc(100), *larger = malloc(5000), *mapped = malloc(1 << 20);
  printf("%lu %lu %lu\\n", (unsigned long)small, (unsigned long)larger, (unsigned long)mapped);
  return 0;
}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "blocks.c").write_text(PROGRAM)
    made = tmp_path / "blocks"
    subprocess.run([compiler, "-O1", "-o", made, tmp_path / "blocks.c"], check=True)
    return made


def library() -> str:
    return str(kernels.build("heap_offset").library)


def offset(bytes_: int) -> dict[str, str]:
    return {"PERFLIB_HEAP_OFFSET": f"{bytes_:08d}"}


def blocks(program: Path, *preload: str, environment: dict[str, str] | None = None) -> list[int]:
    """Addresses of the program's blocks: of 100 B, of 5000 B, and one with its own mapping."""
    wanted = Conditions(aslr=False, preload=preload, environment=environment or {})
    argv, whole = command(wanted, [str(program)])
    done = launched(*argv, env=whole, check=True)
    assert done.stderr == ""  # the dynamic linker has loaded what is named
    return [int(word) for word in done.stdout.split()]


def test_blocks_move_by_exactly_so_many_bytes(program: Path) -> None:
    small, larger, mapped = blocks(program, library(), environment=offset(0))
    for bytes_ in LEVELS:
        moved = blocks(program, library(), environment=offset(bytes_))
        assert moved == [small + bytes_, larger + bytes_, mapped]


@pytest.mark.skipif(not OTHERS, reason="no other allocator is installed")
@pytest.mark.parametrize("allocator", OTHERS, ids=lambda one: one.name)
def test_other_allocators_keep_their_places_in_a_page(program: Path, allocator: Allocator) -> None:
    """They place a block by its size class: what differs is the page, if anything."""
    found = {
        blocks(program, library(), allocator.path, environment=offset(bytes_))[0] % PAGE
        for bytes_ in (0, *LEVELS)
    }
    assert len(found) == 1


def test_the_allocator_is_ready_before_the_heap_moves(program: Path) -> None:
    """The library that LD_PRELOAD names first is initialised last, right before main."""
    if not OTHERS:
        pytest.skip("no other allocator is installed")
    wanted = Conditions(preload=(library(), OTHERS[0].path), environment=offset(16))
    argv, whole = command(wanted, [str(program)])
    said = launched(*argv, env={**whole, "LD_DEBUG": "files"}, check=True).stderr
    begun = [line.split()[-1] for line in said.splitlines() if "calling init: " in line]
    assert begun.index(OTHERS[0].path) < begun.index(library())
