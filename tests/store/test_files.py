"""Files of others that are nested too deeply, or no text: one sentence each, never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perflib.batch import load_sets
from perflib.fleet import manifest
from perflib.fleet.plan import open_plan
from perflib.instruments.counters.on_disk import CountFiles
from perflib.investigation.folder import PLAN, read_plan
from perflib.kernels import bundle, bundling
from perflib.model.errors import UserError

DEEP, DEEPER = b"[" * 20_000, b'{"a":' * 20_000
HUGE = b'{"a": ' + b"9" * 5000 + b"}"
NULL = b'{"a": "\0"}'
CONTENTS = {"deep": DEEP, "deeper": DEEPER, "null": NULL, "no UTF-8": b"\xff", "huge": HUGE}


def counts(path: Path) -> Any:
    files = CountFiles(path.parent, 1 << 20)
    try:
        return files.names([])
    finally:
        files.close()


def row(path: Path) -> Any:
    cell = path.read_bytes().decode(errors="replace").replace('"', '""')
    path.write_text(f'key,node,hostname,experiment,limit_s,params\nk,n,n,kv,1,"{cell}"\n')
    return manifest.read(path)


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "sets of a batch": ("sets.yaml", load_sets),
    "sets as JSON": ("sets.json", load_sets),
    "a plan": ("plan.json", lambda path: open_plan(path.parent)),
    "a manifest's parameters": ("manifest.csv", row),
    "an investigation": (PLAN, lambda path: read_plan(path.parent)),
    "names of counters": ("counters.json", counts),
    "a bundle": (bundle.MANIFEST, lambda path: bundle.open_bundle(path.parent)),
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("reader", READERS)
def test_it_is_a_sentence(reader: str, content: str, tmp_path: Path) -> None:
    name, read = READERS[reader]
    tmp_path.chmod(0o700)
    (tmp_path / name).write_bytes(CONTENTS[content])
    with pytest.raises(UserError) as caught:
        read(tmp_path / name)
    assert len(str(caught.value).splitlines()) == 1


def test_a_cell_of_a_table_is_too_long(tmp_path: Path) -> None:
    (tmp_path / "sets.csv").write_bytes(b"a,b\n" + b"x" * 200_000 + b",1\n")
    with pytest.raises(UserError, match=r"sets\.csv cannot be read: field larger"):
        load_sets(tmp_path / "sets.csv")


def test_a_bundle_that_is_damaged_is_begun_anew(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / bundle.MANIFEST).write_bytes(DEEP)
    assert bundling.begun(tmp_path) == {}
