"""A plan: the folder of a farm's measurement, written whole or not at all.

=================  ==============================================================
``plan.json``      what made it: perflib's version, the bundle of kernels, the time
``manifest.csv``   what is measured, a row each (`perflib.fleet.manifest`)
``nodes.csv``      the nodes, with all that is known of them
``Snakefile``      how the engine starts each row; ``profiles/`` says with what
``bundle/``        the kernels, compiled once
``results/``       ``KEY.parquet`` and ``KEY.sha256``: done
``second/``        a second result of a key, and what was damaged: never chosen
``attempts/``      what became of each attempt (`perflib.fleet.attempts`)
``logs/``          what the engine printed
=================  ==============================================================
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perflib.fleet import manifest, nodes
from perflib.fleet.manifest import Row
from perflib.fleet.nodes import Node
from perflib.fleet.workflow import write_workflow
from perflib.kernels.bundle import open_bundle
from perflib.model.errors import UserError, choose
from perflib.store.files import json_of

FOLDERS = ("results", "second", "attempts", "incoming", "logs")
_FORMAT = 1
_LIMIT_TIMES, _LIMIT_MORE_S = 3, 300  # apart from its budget a job prepares, and may compile


@dataclass(frozen=True)
class Plan:
    """A plan that is there.

    ``perflib`` is the version that made it; ``bundle`` the SHA-256 of the bundle's manifest and
    ``bundle_folder`` its place, both empty where nodes compile.
    """

    folder: Path
    perflib: str
    bundle: str
    bundle_folder: str
    created: str

    @functools.cached_property
    def rows(self) -> dict[str, Row]:
        """The manifest, by key."""
        return {row.key: row for row in manifest.read(self.folder / "manifest.csv")}

    def row(self, key: str) -> Row:
        """One row.

        Raises
        ------
        UserError
            There is none of that key.
        """
        if key not in self.rows:
            raise UserError(choose("key", key, self.rows))
        return self.rows[key]

    def nodes(self) -> list[Node]:
        """The nodes, with their attributes."""
        return nodes.read(self.folder / "nodes.csv")


def planned(
    farm: Sequence[Node],
    names: Sequence[str],
    given: Mapping[str, Any],
    preset: str | None,
    limit_s: int | None,
) -> list[Row]:
    """The rows of a manifest: every experiment on every node.

    Parameters
    ----------
    farm
        The nodes.
    names
        The experiments.
    given
        Parameters, as text too; each goes to the experiments that have it.
    preset
        Of all experiments.
    limit_s
        The longest time of a job; without it three times its budget and five minutes.

    Raises
    ------
    UserError
        An experiment, a preset or a parameter that there is not, or a value that is wrong.
    """
    from perflib.experiments import get
    from perflib.framework import configured

    chosen = [get(name) for name in dict.fromkeys(names)]
    known = {name for one in chosen for name in one.Params.model_fields}
    for name in given:
        if name not in known:
            raise UserError(choose("parameter", name, known))
    measured = []
    for one in chosen:
        mine = {name: text for name, text in given.items() if name in one.Params.model_fields}
        params = configured.params(one, mine, preset)
        limit = limit_s or round(_LIMIT_TIMES * params.budget_s) + _LIMIT_MORE_S
        measured.append((one.name, limit, params.model_dump(mode="json")))
    return [
        Row(manifest.key_of(node.name, name, params), node.name, node.hostname, name, limit, params)
        for node in farm
        for name, limit, params in measured
    ]


def create(
    folder: Path,
    farm: Sequence[Node],
    rows: Iterable[Row],
    bundle: Path | Callable[[Path], object] | None,
) -> Plan:
    """Write a plan.

    Parameters
    ----------
    folder
        Where: it does not exist, or is empty.
    farm, rows
        The nodes, and what is measured (`planned`).
    bundle
        The kernels: a bundle that is there, or what makes one in a folder; ``None``: nodes compile.

    Raises
    ------
    UserError
        There is something, it cannot be written, or the bundle cannot be used.
    """
    from importlib.metadata import version

    check_free(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _beside(folder) as made:
            for name in FOLDERS:
                (made / name).mkdir()
            place = ""
            if callable(bundle):
                bundle(made / "bundle")
                place = "bundle"
            elif bundle is not None:
                place = str(bundle.resolve())
            record = {
                "format": _FORMAT,
                "perflib": version("perflib-jupyter"),
                "bundle": open_bundle(made / place).sha256 if place else "",
                "bundle_folder": place,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            manifest.write(rows, made / "manifest.csv")
            (made / "nodes.csv").write_text(nodes.as_csv(farm), encoding="utf-8")
            write_workflow(made)
            (made / "plan.json").write_text(json.dumps(record, indent=1) + "\n")
            if folder.is_dir():
                folder.rmdir()
            made.rename(folder)
    except OSError as error:
        msg = f"no plan can be written to {folder}: {error.strerror}"
        raise UserError(msg) from error
    return open_plan(folder)


def check_free(folder: Path) -> None:
    """Refuse a folder in which there is something.

    Raises
    ------
    UserError
        There is.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "a plan" if (folder / "plan.json").exists() else "something"
        msg = f"there is {what} in {folder} already, which stays as it is: give another --out"
        raise UserError(msg)


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A folder next to another, removed if it is still there at the end."""
    made = Path(tempfile.mkdtemp(prefix=".plan-", dir=folder.parent))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def open_plan(folder: Path) -> Plan:
    """Open a plan.

    Raises
    ------
    UserError
        There is none, it is damaged, or a later perflib made it.
    """
    place = folder / "plan.json"
    try:
        found = json_of(place.read_text())
        if found["format"] != _FORMAT:
            msg = f"{place} has format {found['format']}, which this perflib does not read"
            raise UserError(msg)
        parts = (found[name] for name in ("perflib", "bundle", "bundle_folder", "created"))
        return Plan(folder.resolve(), *map(str, parts))
    except FileNotFoundError:
        msg = f"there is no plan in {folder}: make one with 'perflib fleet plan'"
        raise UserError(msg) from None
    except OSError as error:
        msg = f"{place} cannot be read: {error.strerror}"
        raise UserError(msg) from error
    except (ValueError, KeyError, TypeError) as error:
        msg = f"{place} is damaged ({error!r}): make the plan again"
        raise UserError(msg) from None
