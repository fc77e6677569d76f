"""Runs hand-outs: a notebook's cells on recorded data, as for a student."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat

from tests.notebooks.forked import ForkServer, errors


def executed(server: ForkServer, notebook: dict[str, Any], folder: Path, *more: str) -> Any:
    """The notebook after all of its cells, and some more, have run; none may fail.

    It has this process's environment.
    """
    opened = nbformat.from_dict(notebook)  # type: ignore[no-untyped-call]
    opened.cells += [nbformat.v4.new_code_cell(source) for source in more]  # type: ignore[no-untyped-call]
    done = server.execute(opened, folder)
    assert not errors(done), errors(done)
    return done


def printed(cell: Any) -> str:
    """What a cell wrote to standard output."""
    return "".join(part["text"] for part in cell.outputs if part.get("name") == "stdout")


SCORE = "print(lab.score().to_json(orient='records'))"


def score(cell: Any) -> dict[str, dict[str, Any]]:
    """The table of points, by exercise, that a cell of `SCORE` printed; the total apart."""
    return {row["name"]: row for row in json.loads(printed(cell))[:-1]}
