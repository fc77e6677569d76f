"""How far predicted gains are from those of the same work really left out.

    python benchmarks/what_if.py [SECONDS]

Three jobs on the event loop, each measured for SECONDS (60 unless given): a lock that limits two
threads, with functions on and off the critical path and one that never runs; one thread, where the
gain is share times speed-up; and more threads than cores, where the method is wrong.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pandas as pd

from perflib import experiments

_SIZES = ["formula=2000", "queue=8000"]
_FUNCTIONS = ["^formula_parse$", "^item_evaluate$", "^event_merge$"]
_JOBS: dict[str, dict[str, Any]] = {
    "two threads, one lock": {"locks": ["formula_lock"], "functions": _FUNCTIONS},
    "one thread": {"threads": 1, "functions": ["^formula_parse$", "^item_evaluate$"]},
    "six threads": {
        "threads": 6, "points": [], "functions": ["^item_evaluate$"], "events": 120,
    },
}  # fmt: skip


def main(seconds: float) -> None:
    """Print a table for each job."""
    experiment = experiments.get("what_if")
    pd.set_option("display.width", 120, "display.max_columns", 20)
    for name, given in _JOBS.items():
        params = experiment.params(
            {"budget_s": seconds, "precision_percent": 1.0, "sizes": _SIZES, **given}
        )
        run = experiment.measure(params)
        gains = experiment.derived(run)["gains"]()
        columns = [
            f"{one}_percent{end}" for one in ("gain", "real") for end in ("", "_low", "_high")
        ]
        others = experiment.derived(run)["interference"]()["others_percent"].mean()
        load = os.getloadavg()[0]
        print(f"{name}: load {load:.1f}, others took cores in {others:.0f} % of the trials")
        shown = gains[["target", "speedup_percent", "profile_percent", *columns]].round(1)
        print(shown.to_string(index=False))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
