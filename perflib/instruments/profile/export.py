"""Samples for other programs: folded stacks, speedscope's files, Parquet."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from perflib.instruments.perf.script import Profile
from perflib.instruments.profile.costs import unit_of
from perflib.instruments.profile.views import select
from perflib.model.errors import UserError
from perflib.model.escape import visible
from perflib.model.files import replacing

__all__ = ["default_event", "folded", "of_one_event", "speedscope", "write_parquet", "write_text"]

_NUMBER = re.compile(r" +[0-9/]+( .*)?$", re.DOTALL)
_ANONYMOUS = "(anonymous namespace)"


def default_event(samples: pd.DataFrame) -> str | None:
    """The first sample's event: what is folded where several were recorded and none is named."""
    return (samples["event"].iloc[0] or None) if len(samples) else None


def of_one_event(samples: pd.DataFrame, event: str | None) -> pd.DataFrame:
    """The samples of the event that is named, else of the first sample's."""
    event = default_event(samples) if event is None else event
    return samples if event is None else select(samples, event=event)


def _weights(samples: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A sample stands for its period, where the text has one."""
    period = samples["period"].to_numpy()
    return np.where(period < 0, 1, period)


def folded(samples: pd.DataFrame, event: str | None = None) -> list[str]:
    """Folded stacks, the input of flame graphs: ``comm;caller;callee weight``, sorted.

    The lines are those that ``stackcollapse-perf`` (``inferno-collapse-perf``) makes of the same
    text: one event, each sample with its period as weight, or one where the text has no periods;
    a command's name ends where a number follows a blank, its blanks are underscores; frames in
    an anonymous namespace and samples without frames are left out. Other than there, events with
    different modifiers (``cycles:u``, ``cycles:k``) are different events and a period counts also
    before an event's name that perf padded, both as in ``stackcollapse-perf.pl``; frames of files
    with a blank in their path, samples with a tracepoint's fields, frames without an object and
    texts with ``PERF_RECORD_`` lines are read. Control characters and line ends in names are
    written out, and a semicolon in a command's name is a colon: neither parts lines or frames.

    Parameters
    ----------
    samples
        The table that ``perfscript.read`` makes, or a part of it.
    event
        Default: the first sample's.

    Raises
    ------
    UserError
        There is no such event.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame(
    ...     {"comm": "Web Content", "event": "", "period": -1, "stack": ["main;f", "main;f"]}
    ... ).astype({"comm": "category", "event": "category", "stack": "category"})
    >>> folded(table)
    ['Web_Content;main;f 2']
    """
    chosen = of_one_event(samples, event)
    pairs = chosen.groupby([chosen["comm"].cat.codes, chosen["stack"].cat.codes], sort=False)
    sums = pd.Series(_weights(chosen), index=chosen.index).groupby(pairs.ngroup()).sum()
    firsts = pairs.head(1)
    total: Counter[str] = Counter()
    for comm, stack, weight in zip(firsts["comm"], firsts["stack"], sums, strict=True):
        if kept := _without_anonymous(stack):
            name = _NUMBER.sub("", comm).replace(" ", "_").replace(";", ":")
            total[visible(f"{name};{kept}")] += int(weight)
    return [f"{stack} {weight}" for stack, weight in sorted(total.items())]


def _without_anonymous(stack: str) -> str:
    """The stack without functions of anonymous namespaces, and what was inlined into them."""
    if _ANONYMOUS not in stack:
        return stack
    kept = []
    skipping = False
    for frame in stack.split(";"):
        inlined = frame.endswith("_[i]")
        skipping = (skipping and inlined) or (frame.startswith(_ANONYMOUS) and not inlined)
        if not skipping:
            kept.append(frame)
    return ";".join(kept)


def speedscope(samples: pd.DataFrame, name: str, event: str | None = None) -> dict[str, Any]:
    """A file for speedscope (https://www.speedscope.app), as its JSON schema wants it.

    One profile a thread, the one with most samples first, its samples in their order. A sample
    weighs its period, in nanoseconds where the event is a clock, or one where there is none.

    Parameters
    ----------
    samples
        The table that ``perfscript.read`` makes, or a part of it.
    name
        What speedscope shows above the profile.
    event
        Default: the first sample's.

    Raises
    ------
    UserError
        There is no such event.

    Examples
    --------
    >>> speedscope(profile.samples, "kv")["profiles"][0]["unit"]  # doctest: +SKIP
    'nanoseconds'
    """
    chosen = of_one_event(samples, event)
    frames: dict[str, int] = {}
    stacks = [
        [frames.setdefault(frame, len(frames)) for frame in stack.split(";")] if stack else []
        for stack in chosen["stack"].cat.categories
    ]
    in_ns = not chosen.empty and unit_of(chosen) == "ns"
    codes, weights = chosen["stack"].cat.codes.to_numpy(), _weights(chosen)
    profiles = []
    threads: dict[Any, Any] = chosen.groupby(["pid", "tid"]).indices
    for (pid, tid), rows in threads.items():
        comm = chosen["comm"].iloc[rows].mode()[0]
        own = weights[rows].tolist()
        profiles.append(
            {
                "type": "sampled",
                "name": f"{comm} {tid}" if pid < 0 else f"{comm} {pid}/{tid}",
                "unit": "nanoseconds" if in_ns else "none",
                "startValue": 0,
                "endValue": sum(own),
                "samples": [stacks[code] for code in codes[rows].tolist()],
                "weights": own,
            }
        )
    profiles.sort(key=lambda profile: -len(profile["samples"]))
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "perflib",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": frame} for frame in frames]},
        "profiles": profiles,
    }


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file beside the wanted one, which takes its place once it is written whole."""
    place = path.resolve()  # a link stays one
    if place.exists() and not place.is_file():
        msg = f"{path} cannot be written: it is no ordinary file"
        raise UserError(msg)
    try:
        with replacing(place) as temporary:
            yield temporary
    except (OSError, duckdb.Error) as error:
        why = getattr(error, "strerror", None) or str(error).splitlines()[0]
        msg = f"{path} cannot be written: {why}"
        raise UserError(msg) from error


def write_text(text: str, path: Path) -> None:
    """Write a file whole or not at all.

    Raises
    ------
    UserError
        It cannot be written there; what was there is unchanged.
    """
    with _replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_parquet(profile: Profile, path: Path) -> None:
    """Write the samples as a Parquet file, perf's header as JSON in its metadata (``perf``).

    Raises
    ------
    UserError
        It cannot be written there; what was there is unchanged.

    Examples
    --------
    >>> write_parquet(profile, Path("samples.parquet"))  # doctest: +SKIP
    >>> duckdb.sql("SELECT symbol, count(*) FROM 'samples.parquet' GROUP BY 1")  # doctest: +SKIP
    """
    header = json.dumps(profile.header).replace("'", "''")
    with _replacing(path) as temporary, duckdb.connect() as connection:
        quoted = str(temporary).replace("'", "''")
        connection.register("samples", profile.samples)
        connection.execute(
            f"COPY samples TO '{quoted}' "
            f"(FORMAT parquet, COMPRESSION zstd, KV_METADATA {{perf: '{header}'}})"
        )
