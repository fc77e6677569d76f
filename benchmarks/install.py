"""How large is each part of perflib when it is installed, and how long does that take?

Each part is installed from a wheel into a virtual environment of its own, with and without pip's
compiled bytecode; with the core alone `kv_per_core` is run at once: kernels are compiled first.
Needs the index of packages.  python benchmarks/install.py [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).parents[1]
PARTS = {"core": "", "report": "[report]", "lab": "[lab]"}


def size_mb(folder: Path) -> float:
    """What the files take on disk, in 10^6 bytes."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*")) / 1e6


def install(wheel: Path, extra: str, venv: Path, *options: str) -> float:
    """Make an environment, install; the seconds that it took."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "-q", "install"]
    subprocess.run([*pip, *options, f"{wheel}{extra}"], check=True)
    return time.perf_counter() - begin


def first_number(venv: Path, home: Path) -> float:
    """The seconds until `perflib run kv_per_core` with a budget of 2 s has said what it found."""
    own = {"PERFLIB_HOME": str(home), "PERFLIB_CACHE": str(home / "cache")}
    begin = time.perf_counter()
    subprocess.run(
        [venv / "bin" / "perflib", "run", "kv_per_core", "-p", "budget_s=2"],
        check=True, capture_output=True, env=os.environ | own,
    )  # fmt: skip
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as place:
        build = [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            place,
            str(TOP),
        ]
        subprocess.run(build, check=True, capture_output=True)
        (wheel,) = Path(place).glob("*.whl")
        for part, extra in PARTS.items():
            for words, options in (("", ()), (", no bytecode", ("--no-compile",))):
                times, numbers, size = [], [], 0.0
                for number in range(rounds):
                    venv = Path(place, f"{part}{number}{bool(options)}")
                    times.append(install(wheel, extra, venv, *options))
                    size = size_mb(venv)
                    if part == "core":
                        numbers.append(first_number(venv, venv / "home"))
                seconds = ", ".join(f"{value:.0f}" for value in sorted(times))
                line = f"{part}{words}: {size:.0f} MB, installed in {seconds} s"
                if numbers:
                    line += f", first run {', '.join(f'{one:.0f}' for one in sorted(numbers))} s"
                print(line, flush=True)


if __name__ == "__main__":
    main()
