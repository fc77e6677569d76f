"""Boot an arm64 guest whose processor has counters, and run the tests of ``inside`` in it.

``make test-arm`` calls this; an ordinary run of all tests does not collect it. With
``ARGS="-m slow"`` every experiment is run in the guest instead, which takes an hour.

QEMU counts with ``-icount``: one instruction is one cycle and one nanosecond, so that every count
is known beforehand, and no time means anything.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.arm.root import WHEELS, build
from tests.numa.guest import TOP, Guest, devices, prepare, program, pytest_inside
from tests.numa.kernel import Kernel, MissingError, Processor
from tests.numa.layouts import MARK

LIMIT_S = 1500.0  # an idle machine takes five minutes, a busy one three times as long
HOURS_S = 7200.0
HERE = Path(__file__).parent
CHECKOUT = Path("/mnt")


def command_line(
    arm: Processor, kernel: Kernel, first_root: Path, root: Path, out: Path
) -> list[str]:
    """A Neoverse N1 with six counters, of which QEMU has the common events; one CPU for -icount."""
    words = [arm.qemu, "-M", "virt", "-cpu", "neoverse-n1,pmu=on", "-icount", "shift=0"]
    words += ["-smp", "1", "-m", "2048M"]
    append = f"console=ttyAMA0 {MARK}arm"
    return words + devices(append, kernel, first_root, out, {"root": root, "checkout": TOP})


def compile_jobs(arm: Processor, out: Path) -> None:
    """What is counted: programs of which each instruction is known."""
    static = [arm.compiler, "-static", "-o"]
    for argv in (
        [*static, str(out / "loop"), "-nostdlib", str(HERE / "loop.S")],
        [*static, str(out / "job"), "-O2", "-DLIBRARY", str(HERE / "job.c"), str(HERE / "loop.S")],
    ):
        subprocess.run(argv, check=True)


@contextlib.contextmanager
def running(inside: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """A guest that runs the tests of a folder."""
    try:
        arm, root = build()
        kernel, first_root = prepare(tmp_path_factory.mktemp("boot"), arm)
    except MissingError as error:
        pytest.skip(str(error))
    out = tmp_path_factory.mktemp("arm")
    compile_jobs(arm, out)
    (out / "cache").mkdir()
    metadata = importlib.metadata.distribution("perflib-jupyter").read_text("METADATA")
    information = out / "site" / "perflib_jupyter.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(metadata or "")
    argv, environment = pytest_inside("python3", inside, CHECKOUT)
    environment["PATH"] = "/usr/sbin:/usr/bin"
    environment["PYTHONPATH"] = f"{CHECKOUT}:/{WHEELS}:/dev/shm/out/site"
    (out / "run").write_text(program([*argv, "-s", "--durations=5"], environment, CHECKOUT))
    with Guest(command_line(arm, kernel, first_root, root, out), out) as started:
        yield started


@pytest.mark.parametrize(
    ("inside", "limit_s"),
    [
        pytest.param("inside", LIMIT_S, marks=pytest.mark.timeout(LIMIT_S + 60)),
        pytest.param(
            "experiments", HOURS_S, marks=[pytest.mark.timeout(HOURS_S + 60), pytest.mark.slow]
        ),
    ],
)
def test_in_a_guest(inside: str, limit_s: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    with running(HERE / inside, tmp_path_factory) as guest:
        answer = guest.answer(limit_s)
    print(answer.said)
    assert answer.status == 0, f"in the guest:\n{answer.said}"
    assert answer.counts["tests"] > 0
    assert answer.counts["failures"] == answer.counts["errors"] == answer.counts["skipped"] == 0
