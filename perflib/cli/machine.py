"""The command about this machine: doctor."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from perflib.cli.output import WIDTH, examples, json_option, print_json, put, quiet, show
from perflib.model.errors import PerflibError

if TYPE_CHECKING:
    import pandas as pd


@click.command(epilog=examples("perflib doctor", "perflib doctor -q", "perflib doctor --json"))
@json_option
def doctor(as_json: bool) -> None:
    """Show this machine, and what spoils measurements on it.

    With each thing that does: what it costs, and the command that changes it. Nothing is changed.
    With -q only what spoils measurements.
    """
    from perflib.machine.describe import describe
    from perflib.machine.doctor.diagnose import diagnose
    from perflib.machine.doctor.lines import check_lines, feature_lines, machine_lines
    from perflib.machine.hardware.features import of_this_machine

    checks = diagnose()
    if quiet() and not as_json:
        _print_checks(check_lines(check for check in checks if check.state != "good"))
        return
    machine, features = describe(), of_this_machine()
    noise, no_noise = _noise()
    if as_json:
        record: dict[str, Any] = {"machine": machine, "checks": [vars(check) for check in checks]}
        record["features"] = [feature.to_dict() for feature in features]
        record["noise"] = [] if noise is None else noise.to_dict("records")
        print_json(record)
        return
    for line in (*machine_lines(machine), *feature_lines(features)):
        show(line, rest="  ")
    _print_checks(check_lines(checks))
    if noise is None:
        show(f"unknown noise: {no_noise}", rest=" " * 8)
    else:
        _print_noise(noise)


def _print_checks(lines: Iterable[str]) -> None:
    """Below a check's first line everything stands as far to the right as its words."""
    for line in lines:
        show(line.strip(), " " * (len(line) - len(line.lstrip())), " " * 8)


def _noise() -> tuple[pd.DataFrame | None, str]:
    """The gaps in each core's clock, a few seconds in all; or why they cannot be measured."""
    from perflib.experiments.machine.measure import look
    from perflib.machine.hardware.topology import topology

    cores = topology().allowed_cpus()
    try:
        return look(cores, spin_ms=max(1.0, min(500.0, 5000.0 / len(cores)))), ""
    except PerflibError as error:
        return None, str(error)


def _print_noise(noise: pd.DataFrame) -> None:
    """A histogram of gaps for each core, as text; the bars are logarithmic."""
    from perflib.experiments.machine.analyse import stolen_by_trial

    for cpu, trial in stolen_by_trial(noise).set_index("cpu").iterrows():
        spun_ms = trial["duration_ns"] / 1e6
        show(
            f"noise on cpu{cpu}: {trial['stolen_percent']:.2f} % of {spun_ms:.0f} ms were taken by "
            "others ('perflib run machine' measures it with an interval)",
            rest="    ",
        )
        bins = noise[(noise["cpu"] == cpu) & (noise["gaps"] > 0)]
        for _, row in bins.iterrows():
            low_us = row["gap_low_ns"] / 1e3
            taken = f"{row['gap_ns'] / 1e6:.2f} ms"
            length = f"{low_us:10.1f} to {2 * low_us:10.1f} us"
            line = f"    {length} {row['gaps']:6.0f} gaps, {taken:>9s} "
            bar = "#" * min(round(2 * math.log2(1 + row["gaps"])), WIDTH - len(line))
            put(line + bar)
