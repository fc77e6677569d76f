"""Load latency in lmbench's pattern, by turns with lmbench itself on one core; and the wall time.

    python benchmarks/memory_latency.py [--rounds 12] [--peer LAT_MEM_RD]

lat_mem_rd (Debian's non-free package lmbench) goes through all its sizes in one run. How long it
times each, it finds out first, by trying 5, 10, 50 and 100 ms: on a quiet machine 50 ms will do,
on a busy one it gives up and takes a second, or hangs. So that is given to it (ENOUGH).

In a round it makes such a run, and so do we: the same sizes, one by one, each by the one and then
the other, in random order. Between two sizes lat_mem_rd is held: it cannot write its line, because
the pipe is full. (It is never stopped by a signal, which it would count as latency.) Both run on
one core under the same conditions, before other work if that is allowed (nice -20), but not under
SCHED_FIFO: there, lat_mem_rd's two processes keep the core from each other.

Each ratio is of the same size in the same round; rounds are longer than the disturbances of a host
(``perflib.stats.intervals``), so each is a block of the interval.
"""

from __future__ import annotations

import argparse
import fcntl
import math
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perflib.kernels import build
from perflib.machine.hardware.caches import caches
from perflib.measure.arrays import LINE_BYTES, Arrays
from perflib.measure.conditions import Conditions
from perflib.measure.launch import command
from perflib.model.errors import MeasurementError
from perflib.stats.interval import Interval
from perflib.stats.intervals import t_interval

_KIB, _MIB = 1 << 10, 1 << 20
_FIGURES = {16 * _KIB: 5, 256 * _KIB: 10, _MIB: 10, 8 * _MIB: 10, 64 * _MIB: 10, 256 * _MIB: 10}
_GET_IT = "apt install lmbench (Debian, component non-free), or give its path by --peer"
_PLACES = ("/usr/lib/lmbench/bin/*/lat_mem_rd", "/usr/lib/lmbench/bin/lat_mem_rd")
_ENOUGH_US = 50_000
_PATIENCE_S = 60.0
_WRITE = "1 0x2 "  # /proc/PID/syscall of who waits in write(2, ...) on x86-64

# lmbench draws the pages of every array from all of the largest. An array whose pages all have an
# entry in any first-level TLB is as fast wherever they are, and need not be laid so dearly.
_SCATTERED_BYTES = 32 * 4 * _KIB
_LUCKY_BYTES = range(512 * _KIB, 32 * _MIB)  # what pages lie where matters most for such sizes
_REPEATS = 7

Floats = NDArray[np.float64]


def sizes(largest: int) -> Iterator[int]:
    """The lengths that lat_mem_rd takes, in bytes: powers of two, and half-way between them."""
    yield from (512, _KIB, 2 * _KIB, 3 * _KIB)
    size = 4 * _KIB
    while size <= largest:
        yield size
        if (between := size + size // 2) <= largest:
            yield between
        size *= 2


def _named(size: int) -> str:
    for unit, name in ((_MIB, "MiB"), (_KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} bytes"


class Peer:
    """lat_mem_rd, held whenever it has something to write.

    Its standard error is a pipe with room for one page, which is full but for the moment in which
    a line is taken.
    """

    def __init__(self, path: str, conditions: Conditions, largest: int) -> None:
        self._read, self._write = os.pipe()
        fcntl.fcntl(self._write, fcntl.F_SETPIPE_SZ, mmap.PAGESIZE)
        self._fill()
        argv = [path, "-t", "-P", "1", "-W", "0", "-N", "1", str(largest // _MIB), str(LINE_BYTES)]
        given = {"ENOUGH": str(_ENOUGH_US)}
        argv, environment = command(replace(conditions, environment=given), argv)
        self._process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stderr=self._write
        )
        self._place = Path(f"/proc/{self._process.pid}/syscall")
        self._lines: list[str] = []

    def _fill(self) -> None:
        os.write(self._write, bytes(mmap.PAGESIZE))

    def _take(self) -> None:
        os.read(self._read, mmap.PAGESIZE)
        self._lines.append(os.read(self._read, mmap.PAGESIZE).decode())
        self._fill()

    def start(self) -> float:
        """Wait until it has begun; seconds."""
        return self._until_held(time.perf_counter())

    def go_on(self) -> float:
        """Let it time one more size; seconds."""
        begin = time.perf_counter()
        self._take()
        return self._until_held(begin)

    def _until_held(self, begin: float) -> float:
        while self._process.poll() is None:
            if self._place.read_text().startswith(_WRITE):
                return time.perf_counter() - begin
            if time.perf_counter() > begin + _PATIENCE_S:
                msg = f"lat_mem_rd has timed one size for {_PATIENCE_S:g} s: is the machine busy?"
                raise MeasurementError(msg)
            time.sleep(0.0005)
        msg = f"lat_mem_rd ended with {self._process.returncode}; it wrote: {self._lines}"
        raise MeasurementError(msg)

    def finish(self) -> float:
        """Let it end; seconds."""
        begin = time.perf_counter()
        self._take_rest()
        self._process.wait()
        return time.perf_counter() - begin

    def _take_rest(self) -> None:
        os.read(self._read, mmap.PAGESIZE)
        os.close(self._write)
        with os.fdopen(self._read) as rest:
            self._lines.append(rest.read())

    def found_ns(self, expected: Sequence[int]) -> list[float]:
        """What it wrote for each size, in nanoseconds a load."""
        words = [line.split() for line in "".join(self._lines).splitlines()]
        found = [(float(pair[0]), float(pair[1])) for pair in words if len(pair) == 2]
        if [round(mib * 2 * _KIB) * 512 for mib, _ in found] != list(expected):
            msg = f"lat_mem_rd wrote what was not expected: {self._lines}"
            raise MeasurementError(msg)
        return [ns for _, ns in found]

    def kill(self) -> None:
        """End it, whatever it is doing."""
        self._process.kill()
        self._process.wait()


class Round(NamedTuple):
    """Of ours and theirs: ``ns[2, size]``, ``s[2, size]``, and what came before and after."""

    ns: Floats
    s: Floats
    start_s: tuple[float, float]

    @property
    def whole_s(self) -> Floats:
        """The two runs, from the start of the processes to their end."""
        return np.asarray(self.s.sum(axis=1) + self.start_s)


class Chaser:
    """Our turns."""

    def __init__(self, cpu: int, span: int, generator: np.random.Generator) -> None:
        self._cpu, self._span, self._generator = cpu, span, generator
        cached = max((cache.size_bytes for cache in caches()), default=span)
        self._warm_loads = 2 * cached // LINE_BYTES  # beyond, nothing of the laying is left

    def _layout_ns(self, arrays: Arrays, size: int) -> float:
        span = self._span if size > _SCATTERED_BYTES else 0
        seed = int(self._generator.integers(2**62))
        why = arrays.place(
            "array", order="lmbench", bytes_=size, seed=seed, cpu=self._cpu, span_bytes=span
        )
        if not why:
            warm = min(size // LINE_BYTES, self._warm_loads)
            loads = 1 << 19 if size <= _MIB else 1 << 17  # milliseconds, in a cache and in memory
            samples, why = arrays.run("array", self._cpu, warm, loads, _REPEATS)
        arrays.release("array")
        if why:
            raise MeasurementError(why)
        return float(np.median(samples["sample"]["cpu_time_ns"] / samples["loads"]))

    def turn(self, arrays: Arrays, size: int) -> tuple[float, float]:
        """Nanoseconds a load in an array of that size, and how many seconds it took to find out."""
        begin = time.perf_counter()
        layouts = 2 if size in _LUCKY_BYTES else 1
        ns = statistics.geometric_mean(self._layout_ns(arrays, size) for _ in range(layouts))
        return ns, time.perf_counter() - begin


def python_start_s() -> float:
    """What a Python takes until it could start a worker."""
    begin = time.perf_counter()
    code = "import perflib.measure.arrays"
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - begin


def one_round(
    path: str, conditions: Conditions, each: Sequence[int], generator: np.random.Generator
) -> Round:
    """Both through all sizes."""
    assert conditions.cpu is not None
    chaser = Chaser(conditions.cpu, each[-1], generator)
    ns, s = np.zeros((2, len(each))), np.zeros((2, len(each)))
    ours_s = python_start_s()
    begin = time.perf_counter()
    with Arrays(conditions) as arrays:
        ours_s += time.perf_counter() - begin
        if arrays.violated:
            raise MeasurementError("; ".join(arrays.violated))
        peer = Peer(path, conditions, each[-1])
        try:
            theirs_s = peer.start()
            for n, size in enumerate(each):
                for who in generator.permutation(2):
                    if who:
                        s[1, n] = peer.go_on()
                    else:
                        ns[0, n], s[0, n] = chaser.turn(arrays, size)
            theirs_s += peer.finish()
            ns[1] = peer.found_ns(each)
        finally:
            peer.kill()
        begin = time.perf_counter()
    ours_s += time.perf_counter() - begin
    return Round(ns, s, (ours_s, theirs_s))


def _times(logs: Floats) -> Interval:
    """A mean of logarithms as a factor."""
    return Interval(*(math.exp(end) for end in t_interval(logs)))


def _ratio(ratios: Floats) -> str:
    mean = _times(np.log(ratios))
    return (
        f"{np.median(ratios):.3f} [{ratios.min():.3f}, {ratios.max():.3f}], "
        f"mean {mean.effect:.3f} ({mean.low:.3f} to {mean.high:.3f})"
    )


def show(rounds: Sequence[Round], each: Sequence[int]) -> None:
    """A line for each figure."""
    ns = np.array([one.ns for one in rounds])
    ratios = ns[:, 0] / ns[:, 1]
    print("ratios: ours / lat_mem_rd, median of paired ratios [least, most], mean (its interval)")
    for n, size in enumerate(each):
        if size not in _FIGURES:
            continue
        percent = _FIGURES[size]
        ours = _times(np.log(ns[:, 0, n]))
        middle = float(np.median(ratios[:, n]))
        verdict = "reached" if abs(middle - 1) <= percent / 100 else "MISSED"
        print(
            f"{_named(size)}: ours {ours.effect:.3g} ns ({ours.low:.3g} to {ours.high:.3g}), "
            f"lat_mem_rd {np.median(ns[:, 1, n]):.3g} ns; ratio {_ratio(ratios[:, n])}, "
            f"within {percent} %: {verdict}"
        )
    middles = np.median(ratios, axis=0)
    least, most = int(middles.argmin()), int(middles.argmax())
    print(
        f"all {len(each)} sizes: median ratios from {middles[least]:.3f} ({_named(each[least])}) "
        f"to {middles[most]:.3f} ({_named(each[most])})"
    )
    print("wall time, ours / lat_mem_rd:")
    wall = np.array([one.whole_s for one in rounds])
    figures = np.isin(each, list(_FIGURES))
    named = np.array([one.s[:, figures].sum(axis=1) + one.start_s for one in rounds])
    for what, s in (
        (f"all {len(each)} sizes, Python's start included", wall),
        (f"{figures.sum()} sizes alone, with all starts", named),
    ):
        quotient = s[:, 0] / s[:, 1]
        verdict = "reached" if np.median(quotient) <= 1 else "MISSED"
        print(
            f"{what}: {np.median(s[:, 0]):.1f} s and {np.median(s[:, 1]):.1f} s, "
            f"ratio {_ratio(quotient)}, at most 1: {verdict}",
            flush=True,
        )


def _found_peer() -> str | None:
    places = [str(found) for place in _PLACES for found in Path("/").glob(place[1:])]
    return next(iter(filter(None, [os.environ.get("LAT_MEM_RD"), shutil.which("lat_mem_rd"),
                                   *places])), None)  # fmt: skip


def go_first() -> None:
    """This process and all that it starts come before others, or all are like others."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    except PermissionError:
        print("no right to a better priority: other work on the core disturbs more")


def main() -> None:
    """Rounds of both, and what they say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default=_found_peer(), help="lat_mem_rd")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--largest", type=int, default=256, help="MiB")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_true", help="is it in order? two rounds to 1 MiB")
    asked = parser.parse_args()
    if not asked.peer:
        parser.error(f"there is no lat_mem_rd: {_GET_IT}")
    if len(os.sched_getaffinity(0)) < 2:
        parser.error("two CPUs are needed: one to measure on, and one to take turns from")
    count, largest = (2, 1) if asked.quick else (asked.rounds, asked.largest)
    if count < 1 or largest < 1:
        parser.error("--rounds and --largest are numbers from 1 on")
    each = list(sizes(largest * _MIB))
    with tempfile.TemporaryDirectory() as home:
        os.environ["PERFLIB_HOME"] = home
        build("memory_chase")
        go_first()
        conditions = Conditions(cpu=asked.cpu, huge_pages="never")
        generator = np.random.default_rng(1)
        rounds = []
        for number in range(count):
            rounds.append(one_round(asked.peer, conditions, each, generator))
            ours_s, theirs_s = rounds[-1].whole_s
            print(f"round {number + 1}: {ours_s:.1f} s and {theirs_s:.1f} s", flush=True)
    show(rounds, each)


if __name__ == "__main__":
    main()
