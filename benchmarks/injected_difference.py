"""Is a function that was made a tenth costlier, on one core, named first, and none where none was?

On one core KV is given the build with a longer kv_runge_kutta (the parameter costlier_core; it
differs by one number), on the other the ordinary one; from run to run it is the other core.
It must lead the comparison and stand out, with the right sign. A null run follows each, the same
without the longer build: nothing may be named.

Short events and many rounds see more than long events and few: most of the scatter lies between
processes. ``visible`` is the growth that such a run names nine times of ten.

    python benchmarks/injected_difference.py [10] [--budget 50] [--event-ms 500] [--hz 10000]
"""

from __future__ import annotations

import argparse

from perflib.experiments.event_profile import EventParams, experiment
from perflib.experiments.event_profile.analyse import CoreProfiles
from perflib.instruments.profile.comparison import Comparison
from perflib.machine.hardware.topology import topology

_FUNCTION = "kv_runge_kutta"


def measure(asked: argparse.Namespace, seed: int, costlier: int | None) -> Comparison:
    """One run as a user makes it, on the first two cores."""
    cores = topology().one_per_core()[:2]
    given = {
        "cores": cores,
        "costlier_core": costlier,
        "seed": seed,
        "budget_s": asked.budget,
        "event_ms": asked.event_ms,
        "frequency_hz": asked.hz,
        "precision_percent": asked.precision,
    }
    run = experiment.measure(EventParams.make(given), tag="injected difference")
    for problem in run.provenance["problems"]:
        print(f"    problem: {problem}")
    (comparison,) = CoreProfiles(experiment.current(run)).comparisons.values()
    return comparison


def line(kind: str, compared: Comparison) -> list[str]:
    """Print a row of the table; the functions that stand out, the clearest first."""
    table = compared.table.set_index("function")
    named = table.index[table["stands_out"]].tolist()
    row, total = table.loc[_FUNCTION], compared.total
    print(
        f"{kind:13s} {compared.rounds:3d} rounds ({compared.outliers} outliers)  "
        f"{_FUNCTION} {row['excess_percent']:+6.1f} % [{row['excess_percent_low']:+.1f}, "
        f"{row['excess_percent_high']:+.1f}], visible {compared.visible()[_FUNCTION]:.1f} %, "
        f"event {total.effect:+.1f} % [{total.low:+.1f}, {total.high:+.1f}]; "
        f"first {table.index[0]}, named {', '.join(named) or 'none'}",
        flush=True,
    )
    return named


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int, nargs="?", default=10, help="pairs of a run and a null")
    parser.add_argument("--budget", type=float, default=50.0, help="seconds a run, at most")
    parser.add_argument("--event-ms", type=float, default=500.0)
    parser.add_argument("--hz", type=int, default=10_000)
    parser.add_argument("--precision", type=float, default=0.1, help="percent of the event time")
    asked = parser.parse_args()
    cores = topology().one_per_core()[:2]
    if len(cores) < 2:
        parser.exit(2, "two cores are needed: there is one\n")
    first, quiet = 0, 0
    for number in range(asked.runs):
        core = cores[number % 2]
        compared = measure(asked, number, core)
        named = line(f"costlier cpu{core}", compared)
        grew = compared.table["excess_percent"].iloc[0] > 0
        first += named[:1] == [_FUNCTION] and grew == (compared.second == f"cpu{core}")
        quiet += not line("null", measure(asked, number, None))
    print(f"{_FUNCTION} is named first in {first} of {asked.runs} runs")
    print(f"no function is named in {quiet} of {asked.runs} null runs")


if __name__ == "__main__":
    main()
