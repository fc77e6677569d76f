"""How long perflib takes to start: help, the list of experiments, TAB, an import, one experiment.

    python benchmarks/startup.py [--repetitions 15]

Each round starts every command once, in a random order, beside a bare Python. What is printed is
the median [least, most] of the times, of the CPU times, and, paired within rounds, of the ratio of
CPU times to a bare Python's: the times move with the load of the machine, the ratios hardly.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import subprocess
import sys
import time

_BARE = "a bare Python"


def _asking(*words: str) -> list[str]:
    """Ask for completions, as bash does."""
    code = (
        "import os\n"
        f"os.environ |= {{'_PERFLIB_COMPLETE': 'bash_complete', 'COMP_WORDS': {' '.join(words)!r}, "
        f"'COMP_CWORD': '{len(words) - 1}'}}\n"
        "from perflib.cli import main\n"
        "main()"
    )
    return ["-c", code]


_COMMANDS: dict[str, tuple[list[str], float]] = {
    _BARE: (["-c", "pass"], 1.0),
    "perflib --help": (["-m", "perflib", "--help"], 0.15),
    "perflib list": (["-m", "perflib", "list"], 0.5),
    "perflib run --help": (["-m", "perflib", "run", "--help"], 0.25),
    "TAB: which experiment": (_asking("perflib", "run", "kv"), 0.25),
    "TAB: which parameter": (_asking("perflib", "run", "kv_per_core", "-p", "ev"), 0.6),
    "import perflib": (["-c", "import perflib"], 0.15),
    "an experiment shows itself": (
        ["-c", "import perflib as pl; repr(pl.experiment('kv_per_core'))"],
        0.5,
    ),
}


def _timed(words: list[str]) -> tuple[float, float]:
    """Wall and CPU time."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _words(values: list[float], digits: int) -> str:
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} [{least:.{digits}f}, {most:.{digits}f}]"


def main() -> None:
    """Print one line a command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--repetitions", type=int, default=15)
    repetitions = parser.parse_args().repetitions
    both: dict[str, list[tuple[float, float]]] = {name: [] for name in _COMMANDS}
    for words, _ in _COMMANDS.values():  # what was never imported is compiled first
        _timed(words)
    for _ in range(repetitions):
        for name in random.sample(list(_COMMANDS), len(_COMMANDS)):
            both[name].append(_timed(_COMMANDS[name][0]))
    for name, (_, limit) in _COMMANDS.items():
        times, cpu = ([pair[which] for pair in both[name]] for which in (0, 1))
        ratios = [one / bare for one, (_, bare) in zip(cpu, both[_BARE], strict=True)]
        reached = "reached" if statistics.median(times) <= limit else "MISSED"
        print(
            f"{name}: {_words(times, 3)} s, CPU {_words(cpu, 3)} s, {_words(ratios, 1)} times a "
            f"bare Python's; at most {limit:g} s: {reached}"
        )


if __name__ == "__main__":
    main()
