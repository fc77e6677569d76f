"""The environment sweep: its time, what a start costs, the simulated spikes, and null sweeps.

    python benchmarks/alias_environment.py [--nulls 20] [--only sweep,spikes,null]

Each line is a figure that was to be reached. The bookkeeping of a start is all that a trial takes
beyond the program's own loop: fork, exec, the dynamic linker, the pipe, the worker's protocol, the
counters and the journal. A null sweep holds the variables at one place within their page; it has
found something where the predicted sizes are slower by any threshold: where the interval excludes
zero from below.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

import numpy as np

from perflib.experiments import get
from perflib.measure.journal import Journal
from perflib.model.finding import Finding
from perflib.model.run import Run

_NAMES = ("sweep", "spikes", "null")
_ONLY_THE_SWEEP = {"link_orders": 0, "aslr_starts": 0, "simulate": False}


def _run(given: dict[str, object]) -> tuple[Run, float]:
    """A run, and how long it took from the first to the last line."""
    experiment = get("alias_environment")
    begin = time.monotonic()
    run = experiment.measure(experiment.params(given))
    return run, time.monotonic() - begin


def _findings(run: Run) -> dict[str, Finding]:
    return {one.of.name: one for one in get("alias_environment").analyse(run)}


def sweep() -> None:
    """512 sizes, five starts of each; and what a start takes beyond its loop."""
    walls: list[float] = []
    append = Journal.append

    def noted(journal: Journal, turn: dict[str, float]) -> None:
        walls.append(1e3 * turn["wall_s"])
        append(journal, turn)

    Journal.append = noted  # type: ignore[method-assign,assignment]
    try:
        run, seconds = _run({**_ONLY_THE_SWEEP, "starts": 5, "precision_percent": 100.0,
                             "budget_s": 60.0})  # fmt: skip
    finally:
        Journal.append = append  # type: ignore[method-assign]
    table = run.samples
    kept = len(set(table["environment_bytes"])), int(table["round"].max()) + 1
    print(f"sweep: {kept[0]} sizes, {kept[1]} rounds, {len(table)} starts in {seconds:.1f} s "
          "(at most 30 s)", flush=True)  # fmt: skip
    own = table["time_ns"].to_numpy(np.float64) / 1e6
    wall = table["wall_ns"].to_numpy(np.float64) / 1e6
    for name, values in (
        ("bookkeeping beyond the loop", np.array(walls) - own),
        ("of which from before fork to after the end", wall - own),
    ):
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
        print(f"    {name}: {middle:.2f} ms a start [{low:.2f}, {high:.2f}] (at most 3 ms)")
    effect = _findings(run)["environment"]
    print(f"    predicted sizes: {effect.effect:+.2f} % [{effect.low:+.2f}, {effect.high:+.2f}]",
          flush=True)  # fmt: skip


def spikes() -> None:
    """The simulated count's spikes against the sizes at which printed addresses agree."""
    run, seconds = _run({"starts": 2, "budget_s": 10.0, "precision_percent": 100.0})
    found = _findings(run)["simulated"]
    print(f"simulated spikes: {found.verdict} ({seconds:.0f} s): {found.reason}")
    for name in ("spikes_bytes", "printed_bytes", "aliases_per_iteration"):
        print(f"    {name}: {found.evidence.get(name)}", flush=True)


def null(runs: int) -> None:
    """Sweeps with the variables held: the predicted sizes must be like any other."""
    nothing, claimed = 0, 0
    for number in range(runs):
        run, _ = _run({**_ONLY_THE_SWEEP, "variables": "hold", "seed": number + 1, "starts": 5,
                       "budget_s": 12.0})  # fmt: skip
        effect = _findings(run)["environment"]
        nothing += effect.low <= 0
        claimed += effect.verdict == "supported"
        print(f"null sweep {number + 1}: {effect.effect:+.2f} % [{effect.low:+.2f}, "
              f"{effect.high:+.2f}]", flush=True)  # fmt: skip
    print(f"null sweeps that find nothing: {nothing} of {runs}; that claim something: {claimed}")


def main() -> None:
    """Run the requested ones, with runs of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nulls", type=int, default=20)
    parser.add_argument("--only", default=",".join(_NAMES))
    given = parser.parse_args()
    wanted = given.only.split(",")
    if unknown := [name for name in wanted if name not in _NAMES]:
        parser.error(f"--only: unknown {', '.join(unknown)}; there are {', '.join(_NAMES)}")
    with tempfile.TemporaryDirectory() as home:
        os.environ["PERFLIB_HOME"] = home
        if "sweep" in wanted:
            sweep()
        if "spikes" in wanted:
            spikes()
        if "null" in wanted:
            null(given.nulls)


if __name__ == "__main__":
    main()
