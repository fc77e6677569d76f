"""A guest with NUMA nodes under qemu, in which this Python runs tests from the host's own files."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from perflib import experiments, kernels
from perflib.measure.conditions import Conditions
from perflib.measure.launch import command
from tests.numa.kernel import (
    AMD64,
    Kernel,
    MissingError,
    Processor,
    find_kernel,
    first_root,
    read_module,
)
from tests.numa.layouts import MARK, Layout

TOP = Path(__file__).parents[2]
INSIDE = Path(__file__).parent / "inside"
# Compiled on the host: gcc takes twenty times as long in a guest.
COMPILED = ("clock_gaps", "cpuid", "memory_chase")
_OUT = "/dev/shm/out"  # where the guest sees the folder of its answers


class GuestError(Exception):
    """The guest did not get to the end of its tests; the text says how far it got."""


# --- how it is started ---------------------------------------------------------------------------


def command_line(
    name: str, layout: Layout, kernel: Kernel, first_root: Path, out: Path
) -> list[str]:
    """What starts a guest, whose answers go to a folder.

    The whole of the host's files are there for reading, without a disk, a network or a screen;
    no KVM, because continuous integration has none, and then guests are alike everywhere.
    """
    nodes = len(layout.distances)
    words = [AMD64.qemu, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", layout.smp]
    words += ["-m", f"{layout.node_mib * nodes}M"]
    for node in range(nodes):
        cpus = ",".join(f"cpus={cpu}" for cpu in layout.cpus(node))
        words += ["-object", f"memory-backend-ram,id=ram{node},size={layout.node_mib}M"]
        words += ["-numa", f"node,nodeid={node},memdev=ram{node},{cpus}"]
    for node in range(nodes):
        for other in range(nodes):
            distance = layout.distances[node][other]
            words += ["-numa", f"dist,src={node},dst={other},val={distance}"]
    # Pages stay where they were put, and the clock is not one of qemu's slow devices.
    append = f"console=ttyS0 numa_balancing=disable tsc=reliable {MARK}{name}"
    return words + devices(append, kernel, first_root, out, {"root": Path("/")})


def devices(
    append: str, kernel: Kernel, first_root: Path, out: Path, shares: Mapping[str, Path]
) -> list[str]:
    """What guests of all processors have: no screen, a console, folders of the host to read."""
    words = ["-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none"]
    words += ["-no-reboot", "-serial", f"file:{out / 'console'}"]
    words += ["-kernel", str(kernel.image), "-initrd", str(first_root)]
    words += ["-append", f"{append} quiet panic=-1 mitigations=off"]
    readable = {tag: (path, ",readonly=on,multidevs=remap") for tag, path in shares.items()}
    for tag, (path, more) in (readable | {"out": (out, "")}).items():
        escaped = str(path).replace(",", ",,")
        words += ["-fsdev", f"local,id={tag},path={escaped},security_model=none{more}"]
        words += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    return words


def program(argv: list[str], environment: Mapping[str, str], top: Path = TOP) -> str:
    """The shell script that the guest's first process runs: it keeps what ``argv`` says."""
    variables = "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()
    )
    return (
        f"{variables}mkdir -p $HOME $PERFLIB_HOME\n"
        f"cp -R {_OUT}/cache $PERFLIB_CACHE && chmod -R go-rwx $PERFLIB_CACHE\n"
        f"cd {shlex.quote(str(top))}\n"
        f"{shlex.join(argv)} > {_OUT}/said 2>&1\n"
        f"echo $? > {_OUT}/status\n"
    )


def tests_inside() -> tuple[list[str], dict[str, str]]:
    """pytest on the tests that are made for a guest, and the environment it needs there."""
    argv, environment = pytest_inside(sys.executable, INSIDE)
    return argv, environment | {
        # numpy sorts wrongly with AVX2 as qemu 7.2 emulates it, and DuckDB does not start without.
        "NPY_DISABLE_CPU_FEATURES": " ".join(_dispatched()),
        "OPENBLAS_CORETYPE": "Nehalem",
        "PATH": os.environ.get("PATH", os.defpath),
    }


def pytest_inside(python: str, inside: Path, top: Path = TOP) -> tuple[list[str], dict[str, str]]:
    """pytest on a folder's tests, where a guest sees the checkout at ``top``."""

    def there(path: Path) -> str:
        return str(top / path.relative_to(TOP))

    argv = [python, "-m", "pytest", "-c", str(top / "pyproject.toml")]
    # Plugins of notebooks and browsers take half a minute to import there.
    argv += ["-p", "pytest_timeout", "-p", "no:cacheprovider", "--confcutdir", there(inside)]
    argv += ["--color=no", f"--junit-xml={_OUT}/report.xml"]
    # One by one: whatever a pattern python_files matches, pytest rewrites, numpy and scipy as well.
    argv += [there(file) for file in sorted(inside.glob("*.py")) if file.name != "conftest.py"]
    return argv, {
        "LC_ALL": "C.UTF-8",
        "HOME": "/dev/shm/home",
        "TMPDIR": "/dev/shm",
        "PERFLIB_CACHE": "/dev/shm/cache",
        "PERFLIB_HOME": f"{_OUT}/data",
        "PERFLIB_PROGRESS": "none",
        "MPLBACKEND": "agg",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _dispatched() -> list[str]:
    """What numpy has code for besides its baseline, whether or not this processor has it.

    numpy leaves out a list that is empty.
    """
    simd = np.show_config(mode="dicts")["SIMD Extensions"]
    return [*simd.get("found", []), *simd.get("not found", [])]


# --- what it answers -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What pytest said in the guest: its exit status, its words, and how many tests ended how."""

    status: int
    said: str
    counts: Mapping[str, int]


def read_answer(out: Path) -> Answer:
    """Read what a guest that has ended left behind.

    Raises
    ------
    GuestError
        It ended before its tests did.
    """
    said = _text(out / "said")
    status = _text(out / "status").strip()
    if not status:
        msg = f"the guest ended before its tests did. {_last_words(out)}"
        raise GuestError(msg)
    counts = {}
    if (out / "report.xml").is_file():
        suites = ET.parse(out / "report.xml").getroot().iter("testsuite")
        totals = [suite.attrib for suite in suites]
        for name in ("tests", "failures", "errors", "skipped"):
            counts[name] = sum(int(total.get(name, 0)) for total in totals)
    return Answer(int(status), said, counts)


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.is_file() else ""


def _last_words(out: Path) -> str:
    parts = []
    for name, what in (("qemu", "qemu"), ("console", "its console"), ("said", "its tests")):
        words = _text(out / name).replace("\r", "").strip()
        if words:
            last = "\n".join(words.splitlines()[-40:])
            parts.append(f"The last that {what} said:\n{last}")
    return "\n".join(parts) or "It said nothing at all: the kernel has not started."


# --- a guest -------------------------------------------------------------------------------------


def prepare(folder: Path, processor: Processor = AMD64) -> tuple[Kernel, Path]:
    """The kernel and the first root, for any number of guests.

    Raises
    ------
    MissingError
        Something is not installed; the text says what to install.
    """
    wanted = (processor.qemu, processor.compiler)
    missing = [program for program in wanted if shutil.which(program) is None]
    install = processor.packages
    if missing:
        msg = f"no {' and no '.join(missing)}: guests cannot be booted. Install: {install}"
        raise MissingError(msg)
    kernel = find_kernel(processor.boot, processor=processor)
    init = folder / "init"
    source = str(Path(__file__).with_name("init.c"))
    compiling = subprocess.run(
        [processor.compiler, "-static", "-O2", "-Wall", "-Wextra", source, "-o", str(init)],
        capture_output=True,
        text=True,
        check=False,
    )
    if compiling.returncode:
        msg = (
            f"the guest's first process does not compile, or not statically: {install}; gcc says: "
            f"{compiling.stderr.strip()}"
        )
        raise MissingError(msg)
    packed = folder / "first_root"
    packed.write_bytes(first_root(init.read_bytes(), map(read_module, kernel.modules)))
    return kernel, packed


class Guest:
    """A guest that runs until its program has ended.

    Parameters
    ----------
    command
        What starts it.
    out
        The folder of its answers, with its program in ``run``.
    """

    def __init__(self, command: list[str], out: Path) -> None:
        self._command = command
        self.out = out

    @classmethod
    def with_tests(
        cls, name: str, layout: Layout, kernel: Kernel, first_root: Path, out: Path
    ) -> Self:
        """A guest that runs the tests inside."""
        kv = experiments.get("kv_per_core")
        copies = kv.plan(kv.Params.make({"cores": [0]}))["copies"]
        for built in [*map(kernels.build, COMPILED), kernels.build("kv", copies=copies)]:
            folder = built.library.parent
            shutil.copytree(folder, out / "cache" / folder.name)
        for version in folder.parent.glob("compiler-*"):
            shutil.copy(version, out / "cache")
        (out / "run").write_text(program(*tests_inside()))
        return cls(command_line(name, layout, kernel, first_root, out), out)

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        argv, environment = command(Conditions(), self._command)  # it ends with this process
        with (self.out / "qemu").open("wb") as words:
            self._process = subprocess.Popen(
                argv, env=environment, stdin=subprocess.DEVNULL, stdout=words, stderr=words
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def answer(self, limit_s: float) -> Answer:
        """What it answers, within so long since its start.

        Raises
        ------
        GuestError
            It hung, or ended too early; with its last words.
        """
        left_s = limit_s - (time.monotonic() - self._began)
        try:
            self._process.wait(max(0.0, left_s))
        except subprocess.TimeoutExpired:
            msg = f"the guest has not ended within {limit_s:g} s. {_last_words(self.out)}"
            raise GuestError(msg) from None
        return read_answer(self.out)
