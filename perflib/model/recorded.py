"""What a run records with its samples: a list of all of it, and what stays out of it.

A test compares the list with what real runs hold, and docs/recorded.md with the list. In a place
``*`` stands for keys that depend on the run (a core's number, a function's name); entries of lists
have the place of their list.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

Anonymous = Literal["", "host", "process", "job", "left out"]


@dataclass(frozen=True)
class Recorded:
    """Keys of one place in a run's provenance, what they hold, and what an export makes of it.

    ``anonymous``: what stands there in an anonymous export, ``host`` for ``host-1``; empty: the
    value itself, without names and paths that its texts hold.
    """

    place: str
    keys: str
    holds: str
    anonymous: Anonymous = ""

    def places(self) -> Iterator[tuple[str, ...]]:
        """Each key's whole place."""
        for key in self.keys.split():
            yield (*self.place.split("."), key) if self.place else (key,)


_TABLE = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
RECORDED = tuple(Recorded(**row) for row in tomllib.loads(_TABLE)["recorded"])


def _alike(listed: tuple[str, ...], place: tuple[str, ...]) -> bool:
    """Whether a place is a listed one, or on the way to it."""
    return len(listed) >= len(place) and all(
        wanted in ("*", key) for wanted, key in zip(listed, place, strict=False)
    )


@functools.cache
def row_of(place: tuple[str, ...]) -> Recorded | None:
    """The list's line of a place in the provenance."""
    for row in RECORDED:
        if any(len(listed) == len(place) and _alike(listed, place) for listed in row.places()):
            return row
    return None


@functools.cache
def is_fixed(place: tuple[str, ...]) -> bool:
    """Whether the last key of a place is one that the list names: it is no run's own."""
    end = len(place)
    return any(
        _alike(listed, place) and listed[end - 1] != "*"
        for row in RECORDED
        for listed in row.places()
    )


def unlisted(provenance: Any, place: tuple[str, ...] = ()) -> Iterator[str]:
    """The places of a provenance that the list lacks."""
    if isinstance(provenance, Mapping):
        for key, value in provenance.items():
            here = (*place, key)
            if any(_alike(listed, here) for row in RECORDED for listed in row.places()):
                yield from unlisted(value, here)
            else:
                yield ".".join(here)
    elif isinstance(provenance, list | tuple):
        for value in provenance:
            yield from unlisted(value, place)


# --- what stays out -------------------------------------------------------------------------------


def names_of_user() -> tuple[set[str], set[str]]:
    """Home folders and names of the user whose process this is; root is nobody's name."""
    import pwd

    homes, names = {os.environ.get("HOME", "")}, {os.environ.get("USER", "")}
    names.add(os.environ.get("LOGNAME", ""))
    with contextlib.suppress(KeyError):  # a number without a name, as containers have it
        entry = pwd.getpwuid(os.getuid())
        homes.add(entry.pw_dir)
        names.add(entry.pw_name)
    return {home.rstrip("/") for home in homes} - {""}, names - {"", "root"}


def without_user(value: Any) -> Any:
    """A record whose paths have ``~`` and ``$USER`` in place of the user's home and name."""
    homes, names = names_of_user()
    longest_first = sorted(homes, key=len, reverse=True)
    patterns = [(rf"(?<![\w.-]){re.escape(home)}(?![\w.-])", "~") for home in longest_first]
    patterns += [(rf"(?<=/){re.escape(name)}(?![\w.-])", "$USER") for name in names]

    def changed(text: str) -> str:
        for pattern, instead in patterns:
            text = re.sub(pattern, lambda _: instead, text)  # noqa: B023
        return text

    return change_texts(value, changed)


def with_user(path: str) -> str:
    """A path that `without_user` wrote, as it is on the user's own machine."""
    return os.path.expandvars(Path(path).expanduser())


def change_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A record, or a table of samples, whose texts are changed; keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: change_texts(inner, change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [change_texts(inner, change) for inner in value]
    if hasattr(value, "columns"):
        return _table_changed(value, change)
    return value


def _table_changed(samples: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """A text stands in many rows: it is changed once."""
    found = {}
    for name, column in samples.select_dtypes(exclude="number").items():
        texts = {one for one in column.unique() if isinstance(one, str)}
        changed = {one: new for one in texts if (new := change(one)) != one}
        if changed:
            found[str(name)] = column.map(lambda one: changed.get(one, one))  # noqa: B023
    return samples.assign(**found)
