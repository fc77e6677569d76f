"""Profiles in a few lines, as ``perflib profile`` and ``perflib annotate`` print them."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from perflib.instruments.perf.script import Profile
from perflib.instruments.profile.alignment import normalised
from perflib.instruments.profile.annotate import listing
from perflib.instruments.profile.export.samples import default_event, of_one_event
from perflib.instruments.profile.modules import modules
from perflib.instruments.profile.views import flat
from perflib.model.errors import UserError

if TYPE_CHECKING:  # scipy's distributions take a second to import
    from perflib.instruments.profile.comparison import Comparison
    from perflib.instruments.profile.side_by_side import SideBySide

_FUNCTIONS = 20  # shown
_MODULES = 10
_UNREAD = 5
_FEW_NAMES = 20  # of threads, in any profile
_NO_SYMBOL = re.compile(r" \([/\[]|^[0-9a-f]{8,} |0x[0-9a-f]+/0x")
_SHOWN_PERCENT, _AROUND = 1.0, 1  # of an instruction that is shown, and so many next to it
_TITLE = "self %     self total %  function  object"


def check_outputs(file: Path, outputs: Mapping[str, Path]) -> None:
    """Say what is wrong with the outputs before a long text is read.

    Raises
    ------
    UserError
        Two outputs are one file, one is the input, a folder, or in a folder that is not there.
    """
    taken = {file.resolve(): "the text that is read"}
    for name, path in outputs.items():
        place = path.resolve()
        if place in taken:
            problem = f"it is {taken[place]}"
        elif place.exists() and not place.is_file():
            problem = "it is no ordinary file"
        elif not place.parent.is_dir():
            problem = f"there is no folder {path.parent}"
        else:
            taken[place] = f"where --{name} goes"
            continue
        msg = f"--{name} {path} cannot be written: {problem}"
        raise UserError(msg)


def of_event(profile: Profile, event: str | None) -> Profile:
    """The samples of one event: the one that is named, else the first sample's.

    Raises
    ------
    UserError
        There is no such event; the nearest is named.
    """
    return dataclasses.replace(profile, samples=of_one_event(profile.samples, event))


def _events(samples: pd.DataFrame) -> dict[str, int]:
    return {str(name): int(count) for name, count in samples["event"].value_counts().items()}


def _threads(samples: pd.DataFrame) -> int:
    return len(samples[["pid", "tid"]].drop_duplicates())


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def headline(profile: Profile) -> str:
    """How many samples, events, threads and lines."""
    samples = profile.samples
    events = _events(samples)
    named = ", ".join(f"{name or '(no name)'} {count}" for name, count in events.items())
    return (
        f"{_number(len(samples), 'sample')} of {_number(len(events), 'event')} ({named}) in "
        f"{_number(_threads(samples), 'thread')}; {_number(profile.lines, 'line')}, "
        f"{profile.unread_count} not read"
    )


def unread_lines(profile: Profile) -> list[str]:
    """The first lines that were not read, with reasons."""
    lines = [
        f"line {entry.line} is {entry.reason}: {entry.text[:60]!r}"
        for entry in profile.unread[:_UNREAD]
    ]
    if profile.unread_count > len(lines):
        more = profile.unread_count - len(lines)
        lines.append(f"... and {more} more line{'s were' if more > 1 else ' was'} not read")
    return lines


def doubts(profile: Profile) -> list[str]:
    """What was read, but is hardly so: what a field out of its place would look like."""
    samples, found = profile.samples, []
    names, symbols = samples["comm"].unique(), samples["symbol"].unique()
    if len(names) > max(_FEW_NAMES, len(samples) / 2):
        found.append(f"{len(samples)} samples have {len(names)} names of threads, as {names[0]!r}")
    if odd := [str(symbol) for symbol in symbols if _NO_SYMBOL.search(str(symbol))]:
        found.append(f"{_number(len(odd), 'function')} with an address or a file: {odd[0]!r}")
    how = "a field may be out of its place; perf script -F comm,pid,tid,cpu,time,event,ip,sym,dso"
    return [f"{what}: {how} writes what is surely read" for what in found]


def function_lines(profile: Profile) -> list[str]:
    """The functions with most samples of their own."""
    functions = flat(profile.samples)
    event = default_event(profile.samples)
    count = _number(len(profile.samples), "sample")
    lines = [f"{event or 'all'}: {count}, by function", _TITLE]
    lines += [
        f"{row['self_percent']:6.2f} {row['self_samples']:8d} {row['total_percent']:7.2f}  "
        f"{row['function'] or '(no frames)'}  {row['object']}".rstrip()
        for row in functions.head(_FUNCTIONS).to_dict("records")
    ]
    if len(functions) > _FUNCTIONS:
        lines.append(f"... and {len(functions) - _FUNCTIONS} more functions")
    return lines


def module_lines(profile: Profile) -> list[str]:
    """The programs and libraries with most samples."""
    table = modules(profile.samples).drop_duplicates("object")
    lines = ["share %  [95 % interval]  samples  program or library"]
    for row in table.head(_MODULES).to_dict("records"):
        interval = f"[{row['module_percent_low']:.2f}, {row['module_percent_high']:.2f}]"
        lines.append(
            f"{row['module_percent']:7.2f}  {interval:16} {row['module_samples']:8d}  "
            f"{row['object']}"
        )
    if len(table) > _MODULES:
        lines.append(f"... and {len(table) - _MODULES} more")
    return lines


def compared(chosen: Profile, name: str, other: Profile, other_name: str) -> Comparison:
    """A profile against another of the same event; without repetitions, by counting alone.

    Raises
    ------
    UserError
        The other has no samples of that event.
    """
    from perflib.instruments.profile.comparison import compare_samples

    try:
        against = of_event(other, default_event(chosen.samples)).samples
    except UserError as error:
        msg = f"{other_name}: {error}"
        raise UserError(msg) from None
    both = [(chosen.samples, name), (against, other_name)]
    used = ["symbol", "object", "event", "period"]  # a run's rounds have no partner in a text
    samples = pd.concat([one[used].assign(configuration=called) for one, called in both])
    return compare_samples(samples, other_name, name)


def comparison_sentences(comparison: Comparison) -> list[str]:
    """What was found."""
    from perflib.instruments.profile.findings import comparison_findings

    return [f"{found.plain}. {found.reason}" for found in comparison_findings(comparison)[:2]]


def comparison_lines(comparison: Comparison) -> list[str]:
    """The functions that differ most."""
    lines = ["additional    share %   excess %  [95 % interval]      function (* stands out)"]
    for row in comparison.table.head(_FUNCTIONS).to_dict("records"):
        share = "-" if math.isnan(row["share_percent"]) else f"{row['share_percent']:.1f}"
        interval = f"[{row['excess_percent_low']:+.1f}, {row['excess_percent_high']:+.1f}]"
        lines.append(
            f"{row['additional']:+10.4g} {share:>10} {row['excess_percent']:+10.1f}  {interval:20} "
            f"{row['function']}{' *' if row['stands_out'] else ''}"
        )
    return lines


def record(profile: Profile, chosen: Profile) -> dict[str, Any]:
    """The same for programs: ``functions`` are those of ``chosen``, the samples of one event."""
    return {
        "samples": len(profile.samples),
        "events": _events(profile.samples),
        "threads": _threads(profile.samples),
        "lines": profile.lines,
        "records": profile.records,
        "unread_count": profile.unread_count,
        "unread": [dataclasses.asdict(entry) for entry in profile.unread],
        "doubts": doubts(profile),
        "header": profile.header,
        "event": default_event(chosen.samples),
        "functions": flat(chosen.samples).head(_FUNCTIONS).to_dict("records"),
        "modules": _modules_record(chosen.samples),
    }


def _modules_record(samples: pd.DataFrame) -> list[dict[str, Any]]:
    """Each program and library with its share, and with its functions."""
    made = []
    for name, rows in modules(samples).groupby("object", sort=False):
        whole = rows.iloc[0]
        functions = ["function", "samples", "percent", "percent_low", "percent_high"]
        made.append(
            {
                "object": str(name),
                "samples": int(whole["module_samples"]),
                "percent": float(whole["module_percent"]),
                "percent_low": float(whole["module_percent_low"]),
                "percent_high": float(whole["module_percent_high"]),
                "functions": rows_of(rows[functions].head(_FUNCTIONS)),
            }
        )
    return made


def additional_record(comparison: Comparison) -> list[dict[str, Any]]:
    """What each function takes more: its share of the additional time, and its excess."""
    table = comparison.table.drop(columns=["log_error", "systematic", "df", "log_odds"])
    return rows_of(table.assign(unit=comparison.unit))


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as JSON can hold them: what is not a number is ``None``."""
    rows: list[dict[str, Any]] = json.loads(table.to_json(orient="records", double_precision=12))
    return rows


# --- instructions side by side -------------------------------------------------------------------


def beside_lines(found: SideBySide, *, whole: bool = False) -> list[str]:
    """The instructions with both shares, those near samples or, ``whole``, all."""
    table = found.table
    most = table[["percent_first", "percent_second"]].max(axis=1)
    hit = (most >= _SHOWN_PERCENT) | table["stands_out"]
    level = f"[{100 * found.confidence:g} % interval]"
    head = f"  first  second  difference {level}  offset * stands out"
    return [head, *listing(table, None if whole else hit, _AROUND, 39, _beside_line)]


def _beside_line(row: Mapping[Any, Any]) -> str:
    shares = [
        f"{row[f'percent_{side}']:5.1f} %" if not pd.isna(row[f"offset_{side}"]) else "      -"
        for side in ("first", "second")
    ]
    change = ""
    if not math.isnan(row["difference"]):
        interval = f"[{row['difference_low']:+.1f}, {row['difference_high']:+.1f}]"
        change = f"{row['difference']:+5.1f} {interval}"
    offset = row["offset_first"] if pd.isna(row["offset_second"]) else row["offset_second"]
    place = f"+{int(offset):#x}" if offset >= 0 else "none"
    mark = "*" if row["stands_out"] else " "
    return f"{shares[0]} {shares[1]}  {change:22} {place:>7} {mark} {beside_text(row)}"


def beside_text(row: Mapping[Any, Any]) -> str:
    """The instruction of both sides; where they are two, the first's and what it became."""
    texts = [row[f"instruction_{side}"] for side in ("first", "second")]
    known = [text for text in texts if isinstance(text, str)]
    if len(known) < 2:
        return known[0] if known else "?"
    different = normalised(known[0]) != normalised(known[1])
    return f"{known[0]} -> {known[1]}" if different else known[1]


def beside_record(found: SideBySide) -> dict[str, Any]:
    """The same for programs."""
    from perflib.instruments.profile.findings import instruction_findings

    return {
        "function": found.function,
        "first": found.first,
        "second": found.second,
        "objects": list(found.objects),
        "rounds": found.rounds,
        "tested": found.tested,
        "comparable": found.comparable,
        "skid": found.skid,
        "remarks": list(found.remarks),
        "findings": [finding.to_dict() for finding in instruction_findings(found)],
        "instructions": rows_of(found.table),
    }
