"""What a notebook shows on recorded data, in a form that is the same on every machine.

Text is compared with numbers rounded; pictures and HTML are left out. Two ways execute the cells:
`forked.ForkServer`, quickly, and nbval with a kernel of its own, which loads this module as a
plugin (``-p tests.notebooks.comparing``).

What describes *this machine* is not compared: which cores it has, and which optional packages.
Those are the cells with nbval's tag ``nbval-ignore-output``, and those that `renewed` finds to show
something else on another machine.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest

from perflib.framework.recordings import machine_for
from perflib.store.paths import notebooks_dir
from tests.notebooks.forked import ForkServer, errors

Outputs = list[dict[str, str]]

EXPECTED = Path(__file__).parent / "expected"
NOTEBOOKS = [
    path
    for path in (*sorted(notebooks_dir().glob("*.ipynb")), *notebooks_dir().glob("course/*.ipynb"))
    if "recorded = " in path.read_text(encoding="utf-8")
]
_DIGITS = 3
_IGNORED = "nbval-ignore-output"  # a cell's tag: it describes this machine
_NONE = 1e-9  # a sum that is zero but for its rounding
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+\.\d+(?:e[-+]?\d+)?(?![\w.]*\w)")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
_LEFT = re.compile(r"\b\d+ s are left")  # of an investigation's time: loading a run takes some
_LOADED = re.compile(r"(-recorded-\w{10})\s+\d+\s*$", re.MULTILINE)  # and its steps' seconds
_BLANKS = re.compile(r"[ \t─-]{2,}|[ \t]")  # a column is as wide as its numbers
# An AMD server with an allocator that is not installed here, without libpfm4 and any program.
_ANOTHER = """\
import os as _os
import shutil as _shutil
import tempfile as _tempfile
from pathlib import Path as _Path
from perflib.machine.describe import describe as _describe
from tests.machine.trees import epyc as _epyc
import _ctypes
from perflib.instruments.counters import pfm as _pfm
_pfm.LIBRARY = "nowhere.so"
_pfm._library.cache_clear()
_describe.__defaults__ = (_epyc(_Path(_tempfile.mkdtemp())),)
_os.environ["LD_LIBRARY_PATH"] = _tempfile.mkdtemp()
_shutil.copy(_ctypes.__file__, _os.environ["LD_LIBRARY_PATH"] + "/libjemalloc.so.2")
"""
_WITHOUT_PROGRAMS = """\
_os.environ["PATH"] = _os.environ["PERFLIB_CC"] = "/nowhere"
"""
_VARIABLES = {"PERFLIB_PROGRESS": "none", "PERFLIB_SOLUTIONS": "1"}
_COMPILES = {"fix_it"}  # what a student writes there is C


# --- as nbval's plugin ---------------------------------------------------------------------------


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """nbval's cells compare text alone, sanitised."""
    for item in items:
        if hasattr(item.parent, "skip_compare"):
            item.parent.skip_compare = (*item.parent.skip_compare, "text/html", "text/latex")
            item.sanitize = sanitised
            item.compare_outputs = functools.partial(_compared, item.compare_outputs)


def _compared(compare: Callable[..., bool], shown: Any, expected: Any, *more: Any) -> bool:
    """As nbval compares, without pictures: a kernel need not show those of matplotlib."""
    kept = [output for output in shown if not _is_picture(output)]
    return compare(kept, expected, *more)


def _is_picture(output: Any) -> bool:
    return "image/png" in output.get("data", {})


def sanitised(text: Any) -> str:
    """Text with numbers of three digits, without addresses, its blanks single."""
    shown = _LEFT.sub("some s are left", _ADDRESS.sub("0x", str(text)))
    shown = _LOADED.sub(r"\1", shown)
    shown = _NUMBER.sub(lambda found: _rounded(float(found[0])), shown)
    return "\n".join(_BLANKS.sub(" ", line).strip() for line in shown.splitlines()).strip()


def _rounded(number: float) -> str:
    return "0" if abs(number) < _NONE else f"{number:.{_DIGITS}g}"


# --- what is expected ----------------------------------------------------------------------------


def name_of(path: Path) -> str:
    """What a notebook's expected outputs are called."""
    return path.stem


def expected_of(path: Path) -> dict[str, Outputs | None]:
    """By a cell's identifier; ``None``: it depends on this machine, or on a screen."""
    file = EXPECTED / f"{name_of(path)}.json"
    if not file.is_file():
        pytest.fail(f"{file} is missing: python -m tests.notebooks.expected {name_of(path)}")
    found: dict[str, Outputs | None] = json.loads(file.read_text(encoding="utf-8"))
    return found


def copy_of(path: Path, expected: dict[str, Outputs | None], target: Path) -> None:
    """The notebook, reading the recorded machine, with its expected outputs for nbval."""
    notebook = _recorded(path)
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        outputs = expected.get(cell.id, [])
        cell.execution_count = 1  # nbval looks at the outputs of no other cell
        cell.outputs = [_as_output(one) for one in outputs or []]
        if outputs is None:
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), _IGNORED]
    nbformat.write(notebook, target)  # type: ignore[no-untyped-call]


def renewed(server: ForkServer, path: Path, folder: Path) -> dict[str, Outputs | None]:
    """What the notebook shows now; what another machine would see otherwise is left out."""
    notebook = _recorded(path)
    here = shown(server, path, folder)
    there = shown(server, path, folder, another=True)
    measuring = {cell.id for cell in notebook.cells if _IGNORED in cell.metadata.get("tags", [])}
    return {
        cell: outputs if outputs == there[cell] and cell not in measuring else None
        for cell, outputs in here.items()
        if outputs != [] or there[cell] != []
    }


def shown(
    server: ForkServer, path: Path, folder: Path, *, another: bool = False
) -> dict[str, Outputs | None]:
    """The text of each code cell, after all have run.

    Parameters
    ----------
    server
        What executes them.
    path
        The notebook, which reads its recorded machine.
    folder
        Empty, for the runs and files that the cells write.
    another
        Whether it runs as on an AMD server that has other optional packages, and no compiler where
        no student writes C. Cells that need what is absent fail, and are not compared.
    """
    notebook = _recorded(path)
    if another:
        before = _ANOTHER + ("" if name_of(path) in _COMPILES else _WITHOUT_PROGRAMS)
        notebook.cells.insert(0, nbformat.v4.new_code_cell(before))  # type: ignore[no-untyped-call]
    variables = {**_VARIABLES, "PERFLIB_HOME": str(folder / "home")}
    executed = server.execute(notebook, folder, environment=variables, stop_at_error=not another)
    assert another or not errors(executed), errors(executed)
    code = [cell for cell in executed.cells[another:] if cell.cell_type == "code"]
    return {cell.id: _texts(cell.outputs) for cell in code}


def differing(
    texts: Mapping[str, Outputs | None], expected: Mapping[str, Outputs | None]
) -> list[str]:
    """What of the compared cells' text is not as expected, in a few lines a cell."""
    return [
        f"cell {cell!r}:\n- {wanted}\n+ {found}"
        for cell, found in texts.items()
        if (wanted := expected.get(cell, [])) is not None and found != wanted
    ]


def _recorded(path: Path) -> Any:
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    (cell,) = (c for c in notebook.cells if "parameters" in c.metadata.get("tags", []))
    cell.source += f'\nrecorded = "{machine_for(path)}"'
    return notebook


def _texts(outputs: Iterable[Any]) -> Outputs | None:
    """The text of a cell's outputs; ``None`` where one is a widget."""
    texts: Outputs = []
    for output in outputs:
        if output.output_type == "stream":
            if texts and output.name in texts[-1]:  # it came in parts
                texts[-1][output.name] += "\n" + sanitised(output.text)
            else:
                texts.append({output.name: sanitised(output.text)})
        elif output.output_type == "error":
            texts.append({"error": output.ename})
        elif "application/vnd.jupyter.widget-view+json" in output.data:
            return None
        elif not _is_picture(output) and "text/plain" in output.data:
            texts.append({"text/plain": sanitised(output.data["text/plain"])})
    return texts


def _as_output(text: dict[str, str]) -> Any:
    ((kind, shown),) = text.items()
    if kind == "text/plain":
        return nbformat.v4.new_output("display_data", {kind: shown})  # type: ignore[no-untyped-call]
    return nbformat.v4.new_output("stream", name=kind, text=shown)  # type: ignore[no-untyped-call]
