"""The null test of alias_offsets: both buffers shift together, so nothing may be found.

    python benchmarks/alias_offsets.py [--runs 20] [--budget 4]

Each run measures a convolution, a copy and the C library's memcpy, two claims about each (the
predicted offsets, and the slowest one). Their distance stays 2048 bytes, modulo 4096. Beside it the
same run with the distance changed, which may find something. The runs are kept in a folder that is
removed afterwards.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

from perflib.experiments.aliasing.offsets import experiment
from perflib.model.finding import Finding

_GIVEN: dict[str, Any] = {
    "functions": ["convolution", "copy", "memcpy"],
    "levels": ["O3"],
    "restrict": "with",
    "elements": [2048],
    "sample_ms": 0.4,
    "simulated_offsets": [],
}


def supported(*, together: bool, seed: int, budget_s: float) -> list[Finding]:
    """The claims that one run supports."""
    given = {**_GIVEN, "together": together, "seed": seed, "budget_s": budget_s}
    found = experiment.analyse(experiment.measure(experiment.params(given)))
    return [finding for finding in found if finding.verdict == "supported"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--budget", type=float, default=4.0, help="seconds of each run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["PERFLIB_HOME"] = home
        claimed = []
        for seed in range(arguments.runs):
            found = supported(together=True, seed=seed, budget_s=arguments.budget)
            claimed += [seed] if found else []
            for finding in found:
                print(f"run {seed}: {finding}")
        runs, clean = arguments.runs, arguments.runs - len(claimed)
        print(f"shifted together: nothing was found in {clean} of {runs} runs (figure: 19 of 20)")
        apart = supported(together=False, seed=0, budget_s=arguments.budget)
        print(f"shifted apart: {', '.join(one.subject for one in apart) or 'nothing was found'}")


if __name__ == "__main__":
    main()
