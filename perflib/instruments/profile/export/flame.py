"""Folded stacks, the input of flame graphs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pandas as pd

from perflib.instruments.profile.export.samples import of_one_event, weights
from perflib.model.escape import visible

_NUMBER = re.compile(r" +[0-9/]+( .*)?$", re.DOTALL)
_ANONYMOUS = "(anonymous namespace)"


def folded(samples: pd.DataFrame, event: str | None = None) -> list[str]:
    """Folded stacks, the input of flame graphs: ``comm;caller;callee weight``, sorted.

    The lines are those that ``stackcollapse-perf`` (``inferno-collapse-perf``) makes of the same
    text: one event, each sample with its period as weight, or one where the text has no periods;
    a command's name ends where a number follows a blank, its blanks are underscores; frames in
    an anonymous namespace and samples without frames are left out. Other than there, events with
    different modifiers (``cycles:u``, ``cycles:k``) are different events and a period counts also
    before an event's name that perf padded, both as in ``stackcollapse-perf.pl``; frames of files
    with a blank in their path, samples with a tracepoint's fields, frames without an object and
    texts with ``PERF_RECORD_`` lines are read; an operator, and a lambda within a function, keep
    their names. Control characters and line ends in names are
    written out, and a semicolon in a command's name is a colon: neither parts lines or frames.

    Parameters
    ----------
    samples
        The table that ``perf.script.read`` makes, or a part of it.
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
    sums = pd.Series(weights(chosen), index=chosen.index).groupby(pairs.ngroup()).sum()
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


def write(samples: pd.DataFrame, name: str, path: Path) -> None:  # noqa: ARG001 - it has no place
    """Write the lines of `folded` of the first sample's event."""
    path.write_text("".join(f"{line}\n" for line in folded(samples)), encoding="utf-8")
