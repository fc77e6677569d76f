"""Our Reed-Solomon kernel beside ISA-L and Jerasure, and null runs of the experiment.

    python benchmarks/erasure_coding.py [--seconds 60] [--nulls 20] [--only speed,null]

10 + 4 blocks of 4 MiB, staggered, one thread. All take turns in rounds, in random order, each time
in memory that was mapped anew; ratios are of times within rounds, with intervals of 95 % from
blocks of time. Of Jerasure reed_sol_van over GF(2^8) and cauchy_good over GF(2^4) and GF(2^8) are
tried, with packets of several sizes, and the fastest is the one to beat. Null runs are of the
experiment, with all blocks moved together by half a page.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perflib.experiments import get
from perflib.experiments.aliasing.erasure_coding.layouts import layout_offsets
from perflib.kernels import Kernel, load
from perflib.model.errors import MeasurementError
from perflib.stats.intervals import robust_mean, t_interval, time_batches

_DATA, _PARITY, _BLOCK_BYTES = 10, 4, 4 << 20
_OURS = "ours, AVX2"
_ISAL = ("ISA-L, AVX2", "ISA-L, its choice")
_MOST_OF_ISAL = 1.5
_PACKETS = (512, 1024, 4096, 16384)
_REPEATS = 2


class Configuration(NamedTuple):
    name: str
    kernel: Kernel
    method: int


def configurations() -> list[Configuration]:
    """Everything that can be had here."""
    ours = load("erasure_coding")
    found = [Configuration("ours, tables", ours, 0), Configuration(_OURS, ours, 1)]
    try:
        isal = load("erasure_isal")
        found += [Configuration(_ISAL[1], isal, 0), Configuration(_ISAL[0], isal, 1)]
    except MeasurementError as error:
        print(f"no ISA-L: {str(error).splitlines()[-1]}")
    try:
        found.append(Configuration("Jerasure, reed_sol_van w=8", load("erasure_jerasure"), 0))
        for bits in (4, 8):
            for packet in _PACKETS:
                define = {"CAUCHY_BITS": bits, "PACKET_BYTES": packet}
                kernel = load("erasure_jerasure", define=define)
                found.append(
                    Configuration(f"Jerasure, cauchy_good w={bits}, packets {packet} B", kernel, 1)
                )
    except MeasurementError as error:
        print(f"no Jerasure: {str(error).splitlines()[-1]}")
    return found


def once(configuration: Configuration, layout: str) -> float:
    """Log of ns a byte."""
    lib, ffi = configuration.kernel.lib, configuration.kernel.ffi
    count = _DATA + _PARITY
    addresses, sample = ffi.new("uint64_t[]", count), ffi.new("erasure_sample *")
    slices = ffi.new("erasure_slice[]", _REPEATS)  # whole blocks: nothing is conditioned here
    offsets = layout_offsets(layout, _DATA, _PARITY)
    for answer in (
        lib.erasure_open(configuration.method, _DATA, _PARITY, _BLOCK_BYTES),
        lib.erasure_lay(offsets, 1, addresses),
        lib.erasure_encode(1, _REPEATS, _BLOCK_BYTES, sample, slices, _REPEATS),
        lib.erasure_close(),
    ):
        if answer:
            msg = f"{configuration.name}: {os.strerror(answer)}"
            raise MeasurementError(msg)
    time_ns = sum(one.timed.time_ns for one in slices)
    return float(np.log(time_ns / sum(one.data_bytes for one in slices)))


def speed(seconds: float, layout: str) -> None:
    """Times within rounds, ours over the others'."""
    found = configurations()
    logs: list[list[float]] = []
    starts: list[float] = []
    begin = time.monotonic()
    while time.monotonic() - begin < seconds or len(logs) < 3:
        starts.append(time.monotonic() - begin)
        row = [0.0] * len(found)
        for place in random.Random(len(logs)).sample(range(len(found)), len(found)):
            row[place] = once(found[place], layout)
        logs.append(row)
    values, names = np.array(logs), [configuration.name for configuration in found]
    blocks = time_batches(np.array(starts), len(values))
    means = np.array([robust_mean(values[blocks == b]) for b in range(int(blocks.max()) + 1)])
    print(f"{layout} blocks, {len(values)} rounds")
    for place, name in enumerate(names):
        middle, low, high = (1e3 * np.exp(-end) for end in t_interval(means[:, place]))
        print(f"    {name}: {middle:.0f} [{high:.0f}, {low:.0f}] MB/s, "
              f"fastest {1e3 * np.exp(-values[:, place].min()):.0f}")  # fmt: skip
    ours = means[:, names.index(_OURS)]
    for name in _ISAL:
        if name in names:
            ratio(name, ours - means[:, names.index(name)], _MOST_OF_ISAL)
    jerasure = [place for place, name in enumerate(names) if name.startswith("Jerasure")]
    if jerasure:
        best = min(jerasure, key=lambda place: float(means[:, place].mean()))
        ratio(names[best], ours - means[:, best], 1.0)


def ratio(name: str, log_ratio: NDArray[np.float64], most: float) -> None:
    """Our time over theirs, and whether it is what was to be reached."""
    middle, low, high = np.exp(t_interval(log_ratio))
    verdict = "reached" if high < most else "MISSED" if low > most else "open"
    print(f"our time over {name}'s: {middle:.3f} [{low:.3f}, {high:.3f}], at most {most:g}: "
          f"{verdict}", flush=True)  # fmt: skip


def null(runs: int) -> None:
    """Runs of the experiment: how often does moving all blocks together count as a difference?"""
    experiment = get("erasure_coding")
    wrong = 0
    for number in range(runs):
        given = {"layouts": ["staggered", "moved"], "seed": number + 1, "budget_s": 20}
        given["implementations"] = ["ours_simd", "isal", "jerasure_vandermonde"]
        run = experiment.measure(experiment.params(given))
        found = [one for one in experiment.analyse(run) if one.of.name == "shifted"]
        named = [one for one in found if one.verdict == "supported"]
        wrong += bool(named)
        effects = "; ".join(f"{one.effect:+.2f} [{one.low:+.2f}, {one.high:+.2f}]" for one in found)
        print(f"null run {number + 1}: {len(named)} differences, percent: {effects}", flush=True)
    print(f"null runs with a difference: {wrong} of {runs}, at most 1 of 20", flush=True)


def main() -> None:
    """Run those that are asked for, with runs of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--nulls", type=int, default=20)
    parser.add_argument("--only", default="speed,null")
    asked = parser.parse_args()
    wanted = asked.only.split(",")
    if unknown := [name for name in wanted if name not in ("speed", "null")]:
        parser.error(f"--only: unknown {', '.join(unknown)}; there are speed, null")
    before = os.sched_getaffinity(0)
    if "speed" in wanted:
        os.sched_setaffinity(0, {max(before)})
        for layout in ("staggered", "aligned"):
            speed(asked.seconds / 2, layout)
    if "null" in wanted:
        os.sched_setaffinity(0, before)
        with tempfile.TemporaryDirectory() as home:
            os.environ["PERFLIB_HOME"] = home
            null(asked.nulls)


if __name__ == "__main__":
    main()
