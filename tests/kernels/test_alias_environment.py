"""alias_environment.c: the program by itself, its objects, and what starts it."""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
from pathlib import Path

import pytest

from perflib import kernels
from perflib.experiments.aliasing.environment.starts import (
    least_bytes,
    linked,
    orders,
    read_line,
)
from perflib.kernels import Kernel
from tests.kernels.brackets import PROBES
from tests.kernels.here import launched
from tests.processes import open_files

SMALL = ["300", "2"]


@pytest.fixture(scope="module")
def program() -> Path:
    return kernels.build("alias_environment", executable=True).library


KERNEL = "alias_environment"


def script(folder: Path, text: str) -> Path:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


class Report:
    """What ``alias_start`` answers."""

    def __init__(
        self, kernel: Kernel, program: Path, arguments: list[str], *,
        variables: tuple[str, ...] = (), size: int = 64, timeout_ms: int = 20_000,
    ) -> None:  # fmt: skip
        def block(words: list[str] | tuple[str, ...]) -> bytes:
            return b"".join(os.fsencode(word) + b"\0" for word in words)

        out = kernel.ffi.new("alias_start_report *")
        self.answer = kernel.lib.alias_start(
            bytes(program), block(arguments), len(arguments), block(variables), len(variables),
            size, False, timeout_ms, out,
        )  # fmt: skip
        self.wall_ns = out.wall_ns
        self.code = os.waitstatus_to_exitcode(out.status) if not self.answer else None
        self.output = kernel.ffi.string(out.output).decode()


# --- the program ---------------------------------------------------------------------------------


def test_it_says_its_sums_sizes_and_addresses(program: Path) -> None:
    environment = {"A": "1", "LONGER": "x" * 100}
    line = launched(program, "300", "2", "free", "-", env=environment, check=True).stdout
    assert line.endswith("sums=900,900,900\n")
    reported = read_line(line, "the program")
    assert reported["environment_bytes"] == 4 + 108
    assert reported["j"] == reported["i"] + 4 == reported["k"] - 4
    assert abs(reported["g"] - reported["inc"]) == 4
    assert 0 < reported["least_ns"] <= reported["time_ns"] / 2
    assert 0 <= reported["cpu_time_ns"] <= reported["least_ns"] + 1_000_000
    assert min(reported["run_delay_ns"], reported["throttled_ns"]) >= -1
    for probe in PROBES:
        assert reported[probe] > 0
    assert reported["cpu"] in {-1, *os.sched_getaffinity(0)}


def test_it_writes_to_a_file(program: Path, tmp_path: Path) -> None:
    launched(program, *SMALL, "free", tmp_path / "line", check=True)
    assert read_line((tmp_path / "line").read_text(), "the program")["i"] > 0
    failed = launched(program, *SMALL, "free", tmp_path / "no" / "line")
    assert (failed.returncode, failed.stdout) == (1, "")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the listing is x86-64's")
def test_nothing_but_the_sources_variables_is_in_memory_in_the_loop(program: Path) -> None:
    words = ["objdump", "-d", "--disassemble=microkernel", "--no-show-raw-insn"]
    listing = launched(*words, program).stdout
    if not listing:
        pytest.skip("no objdump: apt-get install binutils")
    lines = re.findall(r"^ +([0-9a-f]+):\t(.*)", listing, re.MULTILINE)
    numbers = [int(address, 16) for address, _ in lines]
    first = next(n for n, (_, code) in enumerate(lines) if "<i>" in code)
    last = next(n for n in range(first, len(lines)) if re.match(r"jg|jl", lines[n][1]))
    assert int(lines[last][1].split()[1], 16) == numbers[first]
    places = re.findall(
        r"(-0x[0-9a-f]+\(%rbp\)|<[ijk]>)", "\n".join(c for _, c in lines[first:last])
    )
    assert len(set(places)) == 5, "i, j, k, inc and g"
    assert len(places) == 3 * 3 + 3, "each sum loads, adds inc and stores; g is loaded twice"


# --- link orders ---------------------------------------------------------------------------------


def test_objects_linked_in_another_order_lie_elsewhere(tmp_path: Path) -> None:
    found = {}
    for number, order in enumerate(orders(6, seed=1)):
        path = linked(order, tmp_path / f"order{number}")
        words = ["alias_environment", *SMALL, "free", "-"]
        line = launched(*words, executable=path, env={}, check=True).stdout
        reported = read_line(line, "the program")
        found[order] = int(reported["i"]) % 4096
    assert len(found) == 6
    assert found["loop", "table", "buffer"] == found["loop", "buffer", "table"]
    behind = {found[order] for order in found if order[0] != "loop"}
    assert len(behind) >= 3
    assert found["loop", "table", "buffer"] not in behind
    assert len({place % 16 for place in found.values()}) > 1, "another variable aliases in some"


# --- what starts it ------------------------------------------------------------------------------


def test_variables_are_handed_over_and_filled_up(kernel: Kernel, tmp_path: Path) -> None:
    tell = script(tmp_path, 'echo "$A,$B,${#PERFLIB_PADDING}"')
    report = Report(kernel, tell, ["sh"], variables=("A=1", "B=two"), size=100)
    assert report.output == f"1,two,{100 - 4 - 6 - 17}\n"


def test_an_environment_that_is_too_small_or_too_large(kernel: Kernel, program: Path) -> None:
    variables = ("A=1", "B=2")
    least = least_bytes({"A": "1", "B": "2"})
    assert least == 4 + 4 + 17
    arguments = ["alias_environment", *SMALL, "free", "-"]
    assert Report(kernel, program, arguments, variables=variables, size=least).answer == 0
    small = Report(kernel, program, arguments, variables=variables, size=least - 1)
    assert small.answer == errno.EINVAL
    large = Report(kernel, program, arguments, size=131072 + 17)
    assert large.answer == errno.E2BIG
    assert Report(kernel, program, arguments, size=131072).answer == 0


def test_a_program_that_crashes_fails_or_hangs(kernel: Kernel, tmp_path: Path) -> None:
    assert Report(kernel, script(tmp_path, "kill -SEGV $$"), ["sh"]).code == -signal.SIGSEGV
    assert Report(kernel, script(tmp_path, "exit 3"), ["sh"]).code == 3
    hung = Report(kernel, script(tmp_path, "exec sleep 60"), ["sh"], timeout_ms=50)
    assert hung.answer == errno.ETIMEDOUT
    assert Report(kernel, tmp_path / "none", ["sh"]).answer == errno.ENOENT


def test_no_descriptor_and_no_child_is_left(kernel: Kernel, program: Path) -> None:
    before = open_files()
    for _ in range(5):
        report = Report(kernel, program, ["alias_environment", *SMALL, "free", "-"])
        assert (report.answer, report.code) == (0, 0)
        assert report.wall_ns > 0
        Report(kernel, program.with_name("none"), ["x"])
    assert open_files() == before
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    names = [Path(f"/proc/{pid}/comm") for pid in children]
    assert not [name for name in names if name.exists() and "alias_env" in name.read_text()]
