"""Runs in the formats of other programs: CSV, JSON, plain Parquet, OpenMetrics for Prometheus."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflib.model.escape import file_name, visible
from perflib.store.reported import FINDINGS, LEVELS

if TYPE_CHECKING:
    import pandas as pd

    from perflib.model.run import Run

Part = Callable[[Path], None]
"""Writes one file."""
FORMATS = ("run", "csv", "json", "parquet", "openmetrics")
METRICS = "perflib.prom"
_FINDING = (
    "claim", "subject", "kind", "verdict", "effect", "low", "high", "unit", "threshold",
    "confidence", "plain", "exact", "reason", "about",
)  # fmt: skip
_OF_RUN = ("run", "experiment", "node", "start")


def parts(
    form: str, runs: Iterable[Run], report: Callable[[Run], Mapping[str, str]]
) -> dict[str, Part]:
    """The files of an export, by name, each with what writes it.

    Parameters
    ----------
    form
        One of ``FORMATS`` but ``run``.
    runs
        What is exported.
    report
        What the analysis says of a run (`Experiment.reported`).

    Raises
    ------
    UserError
        A run cannot be analysed.
    """
    every = [(run, *_described(report(run))) for run in runs]
    if form == "openmetrics":
        text = _openmetrics(every)
        return {METRICS: lambda path: _write(path, text)}
    make = {"csv": _csv, "json": _json, "parquet": _parquet}[form]
    return {
        f"{file_name(run.id)}{end}": part
        for run, findings, levels in every
        for end, part in make(run, findings, levels).items()
    }


def _described(reported: Mapping[str, str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Findings as the table ``findings`` has them, and levels a row each."""
    findings = []
    for one in json.loads(reported[FINDINGS])["findings"]:
        about = one["about"]
        findings.append({**one, "claim": about["claim"], "exact": one["claim"]})
    levels = [
        {"cpu": cpu, "setting": one["setting"], "value": value, "unit": one["unit"]}
        for one in json.loads(reported[LEVELS])["levels"]
        for cpu, value in zip(one["cpu"], one["value"], strict=True)
    ]
    return findings, levels


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="")


def _of_run(run: Run) -> dict[str, str]:
    machine = run.provenance.get("machine") or {}
    values = (run.id, run.experiment, machine.get("hostname"), run.provenance.get("start"))
    return dict(zip(_OF_RUN, (str(value or "") for value in values), strict=True))


def _table(run: Run, rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> pd.DataFrame:
    import pandas as pd

    names = list(columns)
    plain = [
        [
            json.dumps(row[name]) if isinstance(row[name], dict | list) else row[name]
            for name in names
        ]
        for row in rows
    ]
    table = pd.DataFrame(plain, columns=names)
    for at, (name, value) in enumerate(_of_run(run).items()):
        table.insert(at, name, value)
    return table


def _tables(run: Run, findings: Any, levels: Any) -> dict[str, pd.DataFrame]:
    return {
        "": run.samples,
        ".findings": _table(run, findings, _FINDING),
        ".levels": _table(run, levels, ("cpu", "setting", "value", "unit")),
    }


def _csv(run: Run, findings: Any, levels: Any) -> dict[str, Part]:
    from perflib.store.run_files import write_csv

    def part(table: pd.DataFrame) -> Part:
        return lambda path: write_csv(table, path)

    tables = _tables(run, findings, levels)
    return {f"{end}.csv": part(table) for end, table in tables.items()}


def _parquet(run: Run, findings: Any, levels: Any) -> dict[str, Part]:
    """Without the run's record: such a file is a table, and none takes it for a run."""
    from perflib.store.run_files import write_parquet

    def part(table: pd.DataFrame) -> Part:
        return lambda path: write_parquet(table, path, {})

    tables = _tables(run, findings, levels)
    return {f"{end or '.samples'}.parquet": part(table) for end, table in tables.items()}


def _json(run: Run, findings: Any, levels: Any) -> dict[str, Part]:
    samples = json.loads(run.samples.to_json(orient="split", index=False, double_precision=15))
    whole = {
        **_of_run(run),
        "params": run.params,
        "provenance": _finite(run.provenance),
        "findings": findings,
        "levels": levels,
        "samples": {"columns": samples["columns"], "rows": samples["data"]},
    }
    return {".json": lambda path: _write(path, json.dumps(whole, allow_nan=False) + "\n")}


def _finite(value: Any) -> Any:
    """A record as every reader of JSON takes it: what is not a number is ``null``."""
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- OpenMetrics ----------------------------------------------------------------------------------

_FAMILIES = {
    "perflib_finding_effect": "The estimate of a finding, in its unit.",
    "perflib_finding_low": "The lower end of its confidence interval.",
    "perflib_finding_high": "The upper end of its confidence interval.",
    "perflib_finding_verdict": "1 for the verdict that the label names.",
    "perflib_level": "How slow a core was in a setting; larger is slower.",
    "perflib_run_start_timestamp_seconds": "When the run began.",
}


def _openmetrics(every: Iterable[tuple[Run, Any, Any]]) -> str:
    """One exposition of all; of several runs of an experiment on a node, the newest."""
    newest: dict[tuple[str, str], tuple[Run, Any, Any]] = {}
    for entry in sorted(every, key=lambda one: _of_run(one[0])["start"]):
        own = _of_run(entry[0])
        newest[own["node"], own["experiment"]] = entry
    samples: dict[str, dict[str, float]] = {name: {} for name in _FAMILIES}
    for run, findings, levels in newest.values():
        where = {name: _of_run(run)[name] for name in ("node", "experiment")}
        for one in findings:
            about = {key: value for key, value in one["about"].items() if key != "claim"}
            named = {**about, "claim": one["claim"], "subject": one["subject"], **where}
            for end in ("effect", "low", "high"):
                if one[end] is not None:
                    of_end = labels({**named, "unit": one["unit"]})
                    samples[f"perflib_finding_{end}"].setdefault(of_end, one[end])
            verdict = labels({**named, "kind": one["kind"], "verdict": one["verdict"]})
            samples["perflib_finding_verdict"].setdefault(verdict, 1)
        for one in levels:
            names = ("cpu", "setting", "unit")
            level = labels({**{name: one[name] for name in names}, **where})
            samples["perflib_level"].setdefault(level, one["value"])
        if (start := _seconds(run.provenance.get("start"))) is not None:
            samples["perflib_run_start_timestamp_seconds"][labels(where)] = start
    return exposition(_FAMILIES, samples)


def exposition(families: Mapping[str, str], samples: Mapping[str, Mapping[str, float]]) -> str:
    """Gauges as OpenMetrics: what each family says, and its values by their `labels`."""
    lines = []
    for name, says in families.items():
        lines += [f"# TYPE {name} gauge", f"# HELP {name} {says}"]
        lines += [f"{name}{of} {value}" for of, value in samples[name].items()]
    return "\n".join([*lines, "# EOF"]) + "\n"


def labels(values: Mapping[str, Any]) -> str:
    """Labels in braces; a name that may not be one gets underscores, a text is escaped."""
    found: dict[str, str] = {}
    for key, value in values.items():
        name = re.sub(r"\W", "_", f"_{key}" if key[:1].isdigit() else key, flags=re.ASCII)
        text = value if isinstance(value, str) else json.dumps(value)
        escaped = visible(text).replace("\\", r"\\").replace('"', r"\"")
        found[name] = escaped
    return "{" + ",".join(f'{name}="{found[name]}"' for name in sorted(found)) + "}"


def _seconds(start: Any) -> float | None:
    try:
        moment = datetime.fromisoformat(start)
    except (TypeError, ValueError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
