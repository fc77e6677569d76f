"""What a faster target gains, what a profile would have said, and what is really gained."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd

from perflib.experiments.what_if.claims import CONTROL, GAIN, MISLEADS, TRUE
from perflib.experiments.what_if.table import GainTable, Key
from perflib.framework.levels import levels_table
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Reason
from perflib.stats.interval import Interval


def findings(run: Run) -> list[Finding]:
    """Of each target the gain at its largest speed-up; then the method against itself."""
    table = GainTable(run.samples)
    control = CONTROL.decided(table.control(), run.params["gain_percent"])
    differs = Reason("control") if control.verdict == "refuted" else None
    found = []
    for target in table.targets:
        if speedups := table.speedups(target):
            found += _of_target(run, table, target, speedups, differs)
    return [*found, control]


def _of_target(
    run: Run, table: GainTable, target: Key, speedups: list[float], differs: Reason | None
) -> list[Finding]:
    largest = speedups[-1]
    about = {"target": target.name, "speedup": largest}
    gain = table.gain(target, largest)
    shown = {f"{percent:g}": list(table.gain(target, percent)) for percent in speedups}
    found = [
        GAIN.decided(
            gain,
            run.params["gain_percent"],
            about=about,
            evidence={"gain_percent": shown, "share_percent": list(table.share(target))},
            prevented=differs,
            remarks=_remarks(table, target, gain),
        )
    ]
    if not table.single():
        off = table.off_profile(target, largest)
        limit = run.params["off_percent"]
        found.append(MISLEADS.decided(off, limit, about=about, prevented=differs))
    if largest in table.speedups(target, "real"):
        real = table.gain(target, largest, "real")
        found.append(
            TRUE.decided(
                table.off_real(target, largest),
                run.params["off_percent"],
                about=about,
                evidence={"real_gain_percent": list(real)},
                remarks=[Reason("real", {"real": real.effect})],
            )
        )
    return found


def _remarks(table: GainTable, target: Key, gain: Interval) -> list[Reason]:
    threads, cpus = table.threads()
    remarks = []
    if not table.ever(target):
        remarks.append(Reason("never"))
    if table.single():
        remarks.append(Reason("single"))
    elif 0 < cpus < threads:
        remarks.append(Reason("more_threads", {"threads": threads, "cpus": cpus}))
    if not table.conditioned and table.others_share() > 0:
        remarks.append(Reason("others", {"share": table.others_share()}))
    if "ticks" in table.rows and table.rows["ticks"].eq(other=True).any():
        remarks.append(Reason("ticks"))
    if gain.low > 0 and gain.effect < 100:
        remarks.append(Reason("throughput", {"throughput": 1e4 / (100 - gain.effect) - 100}))
    return remarks


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``WhatIf.tables``."""
    table = GainTable(run.samples)
    return {
        "gains": partial(_gains, table),
        "targets": partial(_targets, table),
        "interference": partial(_interference, table),
    }


def levels(run: Run) -> pd.DataFrame:
    """The job's time with nothing faster."""
    table = GainTable(run.samples)
    controls = table.rows[table.rows["way"] == "control"]
    return levels_table([(-1, "job", float(controls["job_s"].median()), "s")])


def _columns(name: str, one: Interval) -> dict[str, float]:
    return {name: one.effect, f"{name}_low": one.low, f"{name}_high": one.high}


def _gains(table: GainTable) -> pd.DataFrame:
    """One row a target and speed-up."""
    rows: list[dict[str, Any]] = []
    for target in table.targets:
        share = table.share(target).effect
        rows += [
            {
                "target": target.name,
                "kind": target.kind,
                "speedup_percent": percent,
                **_columns("gain_percent", table.gain(target, percent)),
                "profile_percent": share * percent / 100,
                **_columns("real_percent", table.gain(target, percent, "real")),
            }
            for percent in table.speedups(target)
        ]
    return pd.DataFrame(rows)


def _targets(table: GainTable) -> pd.DataFrame:
    """One row a target, the largest gain first."""
    rows = [
        {
            "target": target.name,
            "kind": target.kind,
            "speedup_percent": percent,
            **_columns("share_percent", table.share(target)),
            "profile_percent": table.share(target).effect * percent / 100,
            **_columns("gain_percent", table.gain(target, percent)),
            **_columns("real_percent", table.gain(target, percent, "real")),
            "ever": table.ever(target),
        }
        for target in table.targets
        for percent in table.speedups(target)[-1:]
    ]
    found = pd.DataFrame(rows)
    return found.sort_values("gain_percent", ascending=False, ignore_index=True, kind="stable")


def _interference(table: GainTable) -> pd.DataFrame:
    """One row a way: trials, and the share whose threads waited long for a core."""
    rows = [
        {
            "way": way,
            "trials": len(mine),
            "others_percent": 100 * float(1 - mine["own_cores"].mean()),
            "left_out": int((~mine["own_cores"]).sum()) if table.conditioned else 0,
        }
        for way, mine in table.rows.groupby("way")
    ]
    return pd.DataFrame(rows)
