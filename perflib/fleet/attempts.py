"""Attempts: one small file each, to which a line is added when it begins and one when it ends.

A line is a JSON object; of several ends the last counts. A file with one line is an attempt that
runs, or was killed: nothing that a killed job leaves behind looks like an end.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perflib.fleet.plan import Plan
from perflib.store.files import json_of


@dataclass(frozen=True)
class Attempt:
    """An attempt as its file has it; ``end`` is empty as long as it has none."""

    path: Path
    key: str
    name: str
    start: dict[str, Any]
    end: dict[str, Any]

    def ended(self, state: str, reason: str, **facts: Any) -> None:
        """Add how it ended.

        Raises
        ------
        OSError
            It cannot be written.
        """
        _add(self.path, {"state": state, "reason": reason, "end": now(), **facts})


def now() -> str:
    """The time as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def begin(folder: Path, key: str, **facts: Any) -> Attempt:
    """Begin an attempt in a folder.

    Raises
    ------
    OSError
        Its file cannot be written.
    """
    name = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
    path = folder / f"{key}.{name}.jsonl"
    start = {"key": key, "start": now(), "pid": os.getpid(), **facts}
    _add(path, start)
    return Attempt(path, key, name, start, {})


def _add(path: Path, record: dict[str, Any]) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, json.dumps(record).encode() + b"\n")
        os.fsync(file)
    finally:
        os.close(file)


def latest(plan: Plan) -> dict[str, list[Attempt]]:
    """The attempts of each key, oldest first; by the clock of the file system, not of nodes."""
    found: dict[str, list[tuple[int, Attempt]]] = {}
    for path in (plan.folder / "attempts").glob("*.jsonl"):
        if (attempt := read(path)) is not None:
            found.setdefault(attempt.key, []).append((path.stat().st_mtime_ns, attempt))
    return {
        key: [one for _, one in sorted(several, key=lambda pair: pair[0])]
        for key, several in found.items()
    }


def read(path: Path) -> Attempt | None:
    """An attempt's file; ``None`` where nothing of it can be read."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return None
    key, _, name = path.stem.partition(".")
    records = [one for line in text.splitlines() if isinstance(one := _parsed(line), dict)]
    if not records:
        return None
    return Attempt(path, key, name, records[0], records[-1] if len(records) > 1 else {})


def _parsed(line: str) -> Any:
    try:
        return json_of(line)
    except ValueError:  # a disk that was full cut it off
        return None
