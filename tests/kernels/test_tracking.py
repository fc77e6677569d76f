"""tracking.c: its reference, what its number says, and that the work is done where it says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib import kernels
from perflib.course.mystery import job
from perflib.course.mystery.causes import FUNCTIONS, LOCKS
from perflib.course.mystery.draw import Trouble
from perflib.kernels import Kernel
from tests.kernels.here import launched
from tests.reference import tracking as reference

SOUND = Trouble("nothing", "", 0, 0, 0, 0, 0)
CPU = max(os.sched_getaffinity(0))
KERNEL = "tracking"


def trouble(cause: str, which: int, thousandths: int, cpu: int = CPU) -> Trouble:
    return Trouble(cause, "", cpu, which, thousandths, 0, 0)


def run(number: int, events: int = 2, *before: str) -> str:
    argv = shlex.split(job.command(number).format(first=3, events=events, seed=2))
    return launched(*before, *argv, check=True, timeout=120).stdout


@pytest.mark.arm64
@pytest.mark.parametrize(("seed", "event", "steps"), [(1, 0, 1), (5, 73, 3), (2**64 - 1, 9, 2)])
def test_the_reference_gives_the_same_checksum(
    kernel: Kernel, seed: int, event: int, steps: int
) -> None:
    found = kernel.lib.tracking_checksum(seed, event, steps)
    assert found == reference.checksum(seed, event, steps)


@given(
    cause=st.sampled_from(["function", "code", "buffer", "lock", "thief", "nothing"]),
    which=st.integers(0, 255),
    cpu=st.integers(0, 65535),
    thousandths=st.integers(0, 65535),
    seed=st.integers(0, 2**53 - 1),
)
def test_the_job_reads_from_its_number_what_was_written(
    cause: str, which: int, cpu: int, thousandths: int, seed: int
) -> None:
    kernel = kernels.load("tracking")
    out = kernel.ffi.new("int64_t[4]")
    kernel.lib.tracking_trouble(job.number(trouble(cause, which, thousandths, cpu), seed), out)
    kind = {"function": 1, "code": 2, "buffer": 3, "lock": 4}.get(cause, 0)
    assert list(out) == [kind, which, cpu, thousandths]


def test_results_tell_nothing_of_the_trouble() -> None:
    some = (("function", 2, 2000), ("code", 0, 1000), ("buffer", 0, 1000), ("lock", 1, 800))
    troubles = [SOUND, *(trouble(*one) for one in some)]
    (line,) = {run(job.number(one, 1)).splitlines()[-1] for one in troubles}
    assert re.fullmatch("checksum [0-9a-f]{16}", line)


# --- is it in force? -----------------------------------------------------------------------------


def test_notes_alias_where_they_are_to(kernel: Kernel) -> None:
    def distance(which: int, thousandths: int = 1000) -> int:
        number = job.number(trouble("buffer", which, thousandths), 1)
        return int(kernel.lib.tracking_distance(number))

    assert distance(job.ALWAYS) == 0
    assert distance(job.NEVER) == 2048
    assert distance(0, 0) == 2048
    assert kernel.lib.tracking_distance(job.number(SOUND, 1)) == 2048


def test_where_notes_lie_depends_on_the_start(kernel: Kernel) -> None:
    number = job.number(trouble("buffer", 0, 1000), 1)
    script = "from perflib import kernels; "
    script += f"print(kernels.load('tracking').lib.tracking_distance({number}))"
    found = set()
    for _ in range(40):
        found.add(subprocess.check_output([sys.executable, "-c", script], text=True).strip())
        if len(found) == 2:
            break
    assert found == {"0", "2048"}
    assert kernel.lib.tracking_distance(number) in (0, 2048)


@pytest.mark.parametrize("place", range(3))
def test_threads_wait_for_the_lock_that_is_held(place: int) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("it takes two CPUs")
    number = job.number(trouble("lock", place, 900), 1, flags=job.REPORTS)
    waited: dict[str, float] = {}
    for _ in range(20):
        waited = {
            line.split()[0]: float(line.split()[1])
            for line in run(number, 30).splitlines()
            if line.split()[0] in LOCKS
        }
        if waited[LOCKS[place]] > 0.001:
            break
    assert waited[LOCKS[place]] > 0.001
    assert waited.keys() == set(LOCKS)


def called(number: int, folder: Path, cpu: int) -> dict[str, int]:
    """How often each function is called while one event is simulated on a CPU."""
    out = folder / "calls"
    taskset = ["taskset", "-c", str(cpu)]
    valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "-q"]
    run(number, 1, *taskset, *valgrind, "--compress-strings=no")
    found: dict[str, int] = {}
    name = ""
    for line in out.read_text().splitlines():
        if line.startswith("cfn="):
            name = line.removeprefix("cfn=")
        elif line.startswith("calls="):
            found[name] = found.get(name, 0) + int(line.removeprefix("calls=").split()[0])
    return found


@pytest.mark.skipif(not shutil.which("valgrind"), reason="apt-get install valgrind")
def test_more_is_called_on_that_cpu_alone(tmp_path: Path) -> None:
    sound = called(job.number(SOUND, 1), tmp_path, CPU)
    steps = sound["run_tracks"]
    assert {sound[name] for name in FUNCTIONS} == {reference.TRACKS * steps}
    more = job.number(trouble("function", 2, 1500), 1)
    found = called(more, tmp_path, CPU)
    assert found["shape_pulse"] == 2.5 * sound["shape_pulse"]
    assert {found[name] for name in FUNCTIONS if name != "shape_pulse"} == {12 * steps}
    elsewhere = min(os.sched_getaffinity(0))
    if elsewhere != CPU:
        assert called(more, tmp_path, elsewhere)["shape_pulse"] == sound["shape_pulse"]
    code = called(job.number(trouble("code", 0, 1000), 1), tmp_path, CPU)
    modules = [{name for name in one if name.startswith("unpack_0")} for one in (sound, code)]
    assert len(modules[0]) == 8
    assert len(modules[1]) > 900
