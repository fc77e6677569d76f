"""Measures the recorded runs that travel with perflib, and makes them small.

    python benchmarks/recordings.py measure WORK [NOTEBOOK ...]
    python benchmarks/recordings.py guests WORK
    python benchmarks/recordings.py keep WORK NAME TITLE
    python benchmarks/recordings.py add WORK NAME [--kib 72]
    python benchmarks/recordings.py pack

``measure`` runs the notebooks on this machine as they are, solutions open, each with a store of its
own below WORK: all runs that a notebook makes are recorded, its exercises' too. Keep the machine
quiet meanwhile. ``guests`` runs `numa` in simulated machines of two and four NUMA nodes under qemu;
WORK then has a folder for each. ``keep`` writes the runs of a WORK as the recorded machine NAME
into the package. A run that is too large for its share is cut to its first rounds, which is what a
smaller budget would have measured; its remarks say so. Names of the host and of users do not stay.
``add`` puts runs beside those that are there. ``pack`` writes all that are there once more, as
small as Parquet can be without losing a bit: `keep` and `add` do so themselves.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from perflib import experiments
from perflib.batch import batch
from perflib.framework import recordings
from perflib.model.run import Run
from perflib.store.export import Anonymous
from perflib.store.paths import notebooks_dir
from perflib.store.run_files import load, write_run

_TARGET = Path(recordings.__file__).parent
# What a run may take in the package: all together stay below 6.25 MiB. First the notebook's own
# run, then each of its exercises'.
_MOST_KIB = {
    "kv_per_core": (560, 72),
    "event_profile": (380, 330),
    "alias_offsets": (400, 48),
    "code_segment": (300, 48),
    "counters": (260, 128),
    "memory_load": (64, 33),
    "bracketed": (24, 16),
    "contention": (48, 24),
    "data_tlb": (155, 32),
    "coherence": (140, 32),
    "erasure_coding": (136, 32),
}
_MOST_OTHER_KIB = (210, 32)
_LEAST_ROUNDS = 2
_DICTIONARY = "RLE_DICTIONARY"
_ONE = 1 << 26  # bytes and rows: one page a column, one group of rows
_WHOLE: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 22,
    "data_page_size": _ONE,
    "data_page_version": "2.0",
    "dictionary_pagesize_limit": _ONE,
    "store_schema": False,
    "write_statistics": False,
}
_GUEST_S = 900.0


def measure(work: Path, names: list[str]) -> None:
    """Run the notebooks, each with a store of its own."""
    os.environ |= {"PERFLIB_PROGRESS": "none", "PERFLIB_SOLUTIONS": "1"}
    every = [*notebooks_dir().glob("*.ipynb"), *notebooks_dir().glob("course/*.ipynb")]
    for path in sorted(every):
        if names and path.stem not in names:
            continue
        os.environ["PERFLIB_HOME"] = str(work / path.stem)
        shutil.rmtree(work / path.stem, ignore_errors=True)
        (outcome,) = batch([path], [{}], work / path.stem / "notebook")
        print(path.stem, outcome.state, f"{outcome.seconds:.0f} s", outcome.message, flush=True)


def guests(work: Path) -> None:
    """Run `numa` in guests under qemu: their latencies mean nothing, their placement does."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.numa.guest import Guest, prepare, program, tests_inside
    from tests.numa.layouts import LAYOUTS

    with tempfile.TemporaryDirectory() as folder:
        kernel, first_root = prepare(Path(folder))
        for name, layout in LAYOUTS.items():
            out = work / f"numa{len(layout.distances)}" / "out"
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir(parents=True)
            guest = Guest.with_tests(name, layout, kernel, first_root, out)
            argv = [sys.executable, "-m", "perflib", "run", "numa", "--preset", "quick"]
            _, environment = tests_inside()
            (out / "run").write_text(program([*argv, "-p", "cores=all"], environment))
            with guest:
                answer = guest.answer(_GUEST_S)
            print(name, answer.status, answer.said[-400:], flush=True)


def _runs(work: Path) -> Iterator[Path]:
    """The runs of a WORK, but those that an investigation chose."""
    yield from sorted(work.rglob("runs/*.parquet"))


def keep(work: Path, name: str, title: str) -> None:
    """Write the runs of a WORK into the package, as all that was recorded on a machine."""
    target = _TARGET / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    (target / "about.toml").write_text(f"title = {json.dumps(title)}\n")
    add(work, name)


def add(work: Path, name: str, most_kib: float | None = None) -> None:
    """Write the runs of a WORK into the package, beside those of the machine that are there."""
    target = _TARGET / name
    for path in _runs(work):
        run = load(path)
        tag = run.provenance["tag"] if run.provenance["tag"].startswith("exercise") else ""
        own, exercise = _MOST_KIB.get(run.experiment, _MOST_OTHER_KIB)
        limit_kib = most_kib or (exercise if tag else own)
        kept = _nobody(_cut(run, limit_kib * 1024))
        kept.provenance["tag"] = tag
        write_run(kept, target / f"{kept.id}.parquet", {})
        pack(target / f"{kept.id}.parquet")
        if (beside := path.with_suffix(".recordings")).is_dir():
            shutil.copytree(beside, target / f"{kept.id}.recordings")
        found = experiments.get(kept.experiment).analyse(kept)
        size = (target / f"{kept.id}.parquet").stat().st_size
        told = [f"{one.of.name} {one.verdict}" for one in found[:4]]
        print(f"{size / 1024:6.0f} KiB  {kept.id}  {tag:9s} {told}", flush=True)
    whole = sum(path.stat().st_size for path in _TARGET.rglob("*") if path.is_file())
    print(f"all recorded machines together: {whole / 2**20:.2f} MiB")


def _nobody(run: Run) -> Run:
    """The run without names of hosts, users and other tasks; its id tells no host any more."""
    hidden = Anonymous().run(run)
    experiment, day, time, _, end = run.id.split("-")
    command = {name: run.params[name] for name in ("job_command",) if name in run.params}
    params = hidden.params | command  # the notebook's own, by which the run is found again
    return replace(hidden, id=f"{experiment}-{day}-{time}-recorded-{end}", params=params)


def _cut(run: Run, limit_bytes: float) -> Run:
    """The run's first rounds, as many as have room."""
    rounds = sorted(set(run.samples["round"]))
    few, many = _LEAST_ROUNDS, len(rounds)
    if _size(run) <= limit_bytes or many <= few:
        return run
    while many - few > 1:
        middle = (few + many) // 2
        first = _first(run, rounds[middle - 1])
        few, many = (middle, many) if _size(first) <= limit_bytes else (few, middle)
    cut = _first(run, rounds[few - 1])
    remark = f"cut to its first {few} rounds of {len(rounds)}, to be small"
    cut.provenance = run.provenance | {
        "remarks": [*run.provenance.get("remarks", []), remark],
    }
    return cut


def _first(run: Run, last: int) -> Run:
    return replace(run, samples=run.samples[run.samples["round"] <= last].reset_index(drop=True))


def _size(run: Run) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.parquet"
        write_run(run, path, {})
        pack(path)
        return path.stat().st_size


def pack(path: Path) -> None:
    """Write a run's file once more: each column in the encoding that makes it smallest."""
    table = pq.read_table(path)
    encodings = {name: _smallest(table.select([name])) for name in table.column_names}
    path.write_bytes(_written(table, encodings, table.schema.metadata))


def _smallest(column: pa.Table) -> str:
    (name,), (kind,) = column.column_names, column.schema.types
    possible = [_DICTIONARY, "PLAIN"]
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        possible.append("BYTE_STREAM_SPLIT")
    if pa.types.is_integer(kind):
        possible.append("DELTA_BINARY_PACKED")
    return min(possible, key=lambda one: len(_written(column, {name: one}, {})))


def _written(table: pa.Table, encodings: dict[str, str], texts: dict[bytes, bytes]) -> bytes:
    others = {name: one for name, one in encodings.items() if one != _DICTIONARY}
    dictionary = [name for name in encodings if name not in others]
    with io.BytesIO() as out:
        with pq.ParquetWriter(
            out, table.schema, use_dictionary=dictionary, column_encoding=others, **_WHOLE
        ) as writer:
            writer.write_table(table, row_group_size=_ONE)
            writer.add_key_value_metadata(texts)
        return out.getvalue()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("measure", "guests", "keep", "add", "pack"):
        command = commands.add_parser(name)
        if name != "pack":
            command.add_argument("work", type=Path)
        if name == "measure":
            command.add_argument("notebooks", nargs="*")
        if name in ("keep", "add"):
            command.add_argument("name")
        if name == "add":
            command.add_argument("--kib", type=float, help="what each may take in the package")
        if name == "keep":
            command.add_argument("title")
    given = parser.parse_args()
    if given.command == "measure":
        measure(given.work.absolute(), given.notebooks)
    elif given.command == "guests":
        guests(given.work.absolute())
    elif given.command == "pack":
        for path in sorted(_TARGET.rglob("*.parquet")):
            pack(path)
    elif given.command == "add":
        add(given.work, given.name, given.kib)
    else:
        keep(given.work, given.name, given.title)


if __name__ == "__main__":
    main()
