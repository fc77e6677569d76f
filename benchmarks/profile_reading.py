"""Reading the text of perf script: speed against inferno-collapse-perf, and memory.

    python benchmarks/profile_reading.py --inferno PATH [--lines 2000000] [--repetitions 15]

Each line is a claim of the README, its figure as median [least, most] over paired repetitions. The
text is made here, the same one every time: some thousand functions of C++, Rust and the kernel,
five thousand call chains of 3 to 40 frames, every sample with an address of its own; where it says
"all different", every sample has a call chain of its own, too. inferno-collapse-perf comes with:
cargo install inferno
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from perflib import kernels

_READ = """
import json, resource, sys
from pathlib import Path
if sys.argv[3] != "0":
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]),) * 2)
from perflib.instruments.perf.script import read
small = Path(sys.argv[2])
read(small)  # what is imported and loaded once belongs to the process

def status(name):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])

Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = status("VmRSS")
profile = read(Path(sys.argv[1]))
print(json.dumps({
    "peak": status("VmHWM") - before,
    "table": int(profile.samples.memory_usage(deep=True).sum()),
    "samples": len(profile.samples), "lines": profile.lines, "unread": profile.unread_count,
    "stacks": len(profile.samples["stack"].cat.categories), "whole_process": status("VmHWM"),
}))
"""


def _functions(rng: random.Random) -> list[tuple[str, str]]:
    words = ["scatter", "step", "field", "hadron", "vertex", "merge", "sort", "page", "alloc"]

    def word() -> str:
        return rng.choice(words)

    made = []
    for i in range(3000):
        name, other = f"{word()}_{word()}{i}", f"{word().title()}{word().title()}"
        made.append(
            rng.choice(
                [
                    (name, "[kernel.kallsyms]"),
                    (name, "/usr/lib/x86_64-linux-gnu/libc.so.6"),
                    (f"G4{other}::{name}(G4Track const&, double)", "/opt/sim/lib/libG4.so"),
                    (
                        f"std::map<{other}, std::vector<double> >::{name}(int) const",
                        "/opt/sim/bin/kv",
                    ),
                    (f"<sim::{name} as core::iter::Iterator>::next", "/opt/sim/bin/kv"),
                    (f"void {other}<{word()}, {i}ul>::{name}<int>()", "/opt/sim/lib/libtrack.so"),
                    ("[unknown]", f"/opt/sim/lib/lib{word()}.so"),
                ]
            )
        )
    return made


def text(lines: int, different: bool) -> Iterator[str]:
    """The lines of a text, a sample at a time."""
    rng = random.Random(1)
    functions = _functions(rng)

    def chain_of_calls() -> tuple[str, str, int]:
        chain, at = [], rng.randrange(len(functions))
        for _ in range(rng.randint(3, 40)):
            name, obj = functions[at]
            where = "" if name == "[unknown]" else f"+{rng.randrange(4096):#x}"
            chain.append(f" {name}{where} ({obj})\n")
            at = (at * 7 + rng.randrange(5)) % len(functions)
        callers = "".join(f"\t{rng.getrandbits(47):16x}{frame}" for frame in chain[1:])
        return chain[0], callers, len(chain) + 2

    chains = [chain_of_calls() for _ in range(5000)]
    comms = ["kv", "Web Content", "kworker/0:1-events", "tokio-runtime-w", "java"]
    written, time_us = 0, 1_000_000_000
    while written < lines:
        often = chains[int(rng.random() ** 3 * len(chains))]
        leaf, callers, n = chain_of_calls() if different else often
        time_us += rng.randrange(1000)
        thread = rng.randrange(8)
        yield (
            f"{comms[thread % 5]} {4000 + thread % 5:>7}/{4000 + thread:<7} [{thread % 4:03d}] "
            f"{time_us // 10**6}.{time_us % 10**6:06d}:     250000 cycles:u: \n"
            f"\t{0x400000 + rng.randrange(1 << 20):16x}{leaf}{callers}\n"
        )
        written += n


def write(path: Path, lines: int, *, different: bool = False) -> None:
    """A text of so many lines, and the few that its last sample has more."""
    with path.open("w") as file:
        file.writelines(text(lines, different))


def _show(claim: str, values: Sequence[float], unit: str, good: bool, limit: str) -> None:
    middle = statistics.median(values)
    print(
        f"{claim}: {middle:.3g} {unit} [{min(values):.3g}, {max(values):.3g}], {limit}: "
        f"{'reached' if good else 'MISSED'}",
        flush=True,
    )


def speed(inferno: str, path: Path, repetitions: int) -> None:
    """Lines a second of both, one after the other, in random order within each pair."""
    from perflib.instruments.perf.script import read

    lines = read(path).lines
    rng = random.Random(2)
    times: dict[str, list[float]] = {"perflib": [], "inferno": []}
    for _ in range(repetitions):
        for name in rng.sample(list(times), 2):
            begin = time.perf_counter()
            if name == "perflib":
                read(path)
            else:
                command = [inferno, "-n", "1", str(path)]
                subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            times[name].append(time.perf_counter() - begin)
    for name, seconds in times.items():
        rates = [lines / second / 1e6 for second in seconds]
        print(f"{name}: {statistics.median(rates):.3g} million lines/s [{min(rates):.3g}, "
              f"{max(rates):.3g}]")  # fmt: skip
    ratios = [theirs / ours for ours, theirs in zip(*times.values(), strict=True)]
    good = statistics.median(ratios) >= 0.5
    _show("speed over inferno-collapse-perf -n 1", ratios, "times", good, "at least 0.5")


def memory(path: Path, small: Path, limit: int) -> None:
    """The reading process's peak above what it had before, over the table's own size."""
    command = [sys.executable, "-c", _READ, str(path), str(small), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"within {limit} bytes of address space: MISSED\n{done.stderr}", flush=True)
        return
    seen = json.loads(done.stdout)
    if seen["unread"]:
        print(f"{seen['unread']} lines were not read: MISSED")
    print(
        f"{seen['lines']} lines, {seen['samples']} samples, {seen['stacks']} stacks: "
        f"table {seen['table'] / 1e6:.1f} MB, whole process {seen['whole_process'] / 1e6:.0f} MB"
        + (f" under RLIMIT_AS of {limit / 1e9:.2f} GB: reached" if limit else "")
    )
    ratio = seen["peak"] / seen["table"]
    _show("peak memory over the table's size", [ratio], "times", ratio <= 3, "at most 3")


def main() -> None:
    """Run them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inferno", default=shutil.which("inferno-collapse-perf"))
    parser.add_argument("--lines", type=int, default=2_000_000)
    parser.add_argument("--most", type=int, default=10_000_000, help="lines, within 2 GB")
    parser.add_argument("--repetitions", type=int, default=15)
    asked = parser.parse_args()
    kernels.build("perf_script")
    with tempfile.TemporaryDirectory() as folder:
        small, path = Path(folder) / "small.txt", Path(folder) / "perf.txt"
        write(small, 1000)
        write(path, asked.lines)
        if asked.inferno:
            speed(asked.inferno, path, asked.repetitions)
        else:
            print("no inferno-collapse-perf: speed is not compared")
        memory(path, small, 0)
        print("all different:")
        write(path, asked.lines, different=True)
        memory(path, small, 0)
        write(path, asked.most, different=True)
        memory(path, small, 2 * 10**9)


if __name__ == "__main__":
    main()
