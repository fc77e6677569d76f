"""The manifest: a row is a node, an experiment and its parameters; its key is their hash."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflib.model.errors import UserError
from perflib.store.files import json_of

COLUMNS = ("key", "node", "hostname", "experiment", "limit_s", "params")
_DIGITS = 16  # of the key: a farm of a million rows has two of one key with probability 3e-8


@dataclass(frozen=True)
class Row:
    """What is measured once: an experiment with its parameters, on a node.

    ``limit_s`` is the longest time that it may take there.
    """

    key: str
    node: str
    hostname: str
    experiment: str
    limit_s: int
    params: Mapping[str, Any]


def key_of(node: str, experiment: str, params: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits, the same whatever the order of the parameters.

    >>> key_of("n1", "kv_per_core", {"seed": 1, "budget_s": 60.0})
    '502de5fb771b56a0'
    """
    text = json.dumps([node, experiment, params], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def write(rows: Iterable[Row], path: Path) -> None:
    """Write the manifest as CSV, the parameters as JSON."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for row in rows:
            cells = (row.key, row.node, row.hostname, row.experiment, row.limit_s)
            table.writerow([*cells, json.dumps(row.params, sort_keys=True)])


def read(path: Path) -> list[Row]:
    """Read the manifest back.

    Raises
    ------
    UserError
        It cannot be read, or is damaged.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [
                Row(
                    cells["key"],
                    cells["node"],
                    cells["hostname"],
                    cells["experiment"],
                    int(cells["limit_s"]),
                    json_of(cells["params"]),
                )
                for cells in csv.DictReader(file)
            ]
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise UserError(msg) from error
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        msg = f"{path} is damaged ({error!r}): make the plan again"
        raise UserError(msg) from None
    for row in rows:
        if row.key != key_of(row.node, row.experiment, row.params):
            msg = f"{path} was changed: row {row.key} is not what its key says. Make another plan"
            raise UserError(msg)
    return rows
