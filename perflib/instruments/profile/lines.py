"""A profile in a few lines, as ``perflib profile`` prints it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from perflib.instruments.perf.script import Profile
from perflib.instruments.profile.comparison import Comparison, compare_samples
from perflib.instruments.profile.export import default_event, of_one_event
from perflib.instruments.profile.findings import comparison_findings
from perflib.instruments.profile.views import flat
from perflib.model.errors import UserError

__all__ = [
    "check_outputs",
    "compared",
    "comparison_lines",
    "comparison_sentences",
    "function_lines",
    "headline",
    "of_event",
    "record",
    "unread_lines",
]

_FUNCTIONS = 20  # shown
_UNREAD = 5
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


def compared(chosen: Profile, name: str, other: Profile, other_name: str) -> Comparison:
    """A profile against another of the same event; without repetitions, by counting alone.

    Raises
    ------
    UserError
        The other has no samples of that event.
    """
    try:
        against = of_event(other, default_event(chosen.samples)).samples
    except UserError as error:
        msg = f"{other_name}: {error}"
        raise UserError(msg) from None
    both = [(chosen.samples, name), (against, other_name)]
    samples = pd.concat([one.assign(configuration=called) for one, called in both])
    return compare_samples(samples, other_name, name)


def comparison_sentences(comparison: Comparison) -> list[str]:
    """What was found."""
    return [f"{found.plain}. {found.reason}" for found in comparison_findings(comparison)[:2]]


def comparison_lines(comparison: Comparison) -> list[str]:
    """The functions that differ most."""
    lines = ["additional    share %   excess %  [95 % interval]      function (* stands out)"]
    for row in comparison.table.head(_FUNCTIONS).to_dict("records"):
        share = "-" if math.isnan(row["share_percent"]) else f"{row['share_percent']:.1f}"
        interval = f"[{row['excess_low']:+.1f}, {row['excess_high']:+.1f}]"
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
        "header": profile.header,
        "event": default_event(chosen.samples),
        "functions": flat(chosen.samples).head(_FUNCTIONS).to_dict("records"),
    }
