"""Notebooks in one process that has imported everything once, and forks for each of them.

A Jupyter kernel of its own takes seconds until perflib, pandas and matplotlib are imported. Here
an in-process kernel of ipykernel executes the cells, in a child that begins with those imports.
It shows what a kernel of its own shows (a test says so), papermill's parameters included.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import nbformat

ROOT = Path(__file__).parents[2]
NOTEBOOK_S = 240
_INLINE = (
    "module://matplotlib_inline.backend_inline"  # as in JupyterLab: a figure ends with its cell
)
LIBRARIES = (  # with what they import only when it is used first
    "IPython.core.application",
    "IPython.core.completerlib",
    "IPython.core.oinspect",
    "IPython.core.pylabtools",
    "PIL.features",
    "duckdb",
    "ipykernel.debugger",
    "ipykernel.inprocess.blocking",
    "ipykernel.inprocess.ipkernel",
    "ipywidgets",
    "matplotlib.backends.backend_agg",
    "pandas.core.reshape.reshape",
    "pandas.io.formats.html",
    "pandas.io.formats.string",
    "pyarrow.pandas_compat",
    "seaborn",
    "tornado.platform.asyncio",
)
_NOT_IMPORTED = ("perflib.__main__", "perflib.cli")
_POINT = base64.b64decode(  # a picture of one white point
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="
)


class ForkServer:
    """A process that executes notebooks, each in a fork of it; it ends with its ``with`` block."""

    def __enter__(self) -> Self:
        environment = {**os.environ, "MPLBACKEND": _INLINE, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def execute(
        self,
        notebook: Any,
        folder: Path,
        *,
        parameters: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        stop_at_error: bool = True,
    ) -> Any:
        """The notebook with its cells' outputs, executed in the folder.

        Parameters
        ----------
        notebook
            As nbformat reads it; it stays as it is.
        folder
            The working directory, in which the executed notebook is left.
        parameters
            Assigned after the cell of parameters, as papermill does.
        environment
            Variables beyond those of this process.
        stop_at_error
            Whether the first cell that fails is the last.
        """
        path = folder / "executed.ipynb"
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
        request = {
            "notebook": str(path),
            "parameters": dict(parameters or {}),
            "environment": {**os.environ, "MPLBACKEND": _INLINE, **(environment or {})},
            "stop_at_error": stop_at_error,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().strip()
        assert answer == "0", f"the notebook's process ended with {answer or 'its parent'}"
        return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def errors(notebook: Any) -> list[str]:
    """What its cells raised, in a line each."""
    outputs = (out for cell in notebook.cells for out in cell.get("outputs", ()))
    return [f"{out.ename}: {out.evalue}" for out in outputs if out.output_type == "error"]


# --- the process ---------------------------------------------------------------------------------


def _serve() -> None:
    """Fork for each request that standard input has in a line; answer with the exit status."""
    import pandas as pd
    import seaborn._statistics
    from matplotlib.backend_bases import FigureCanvasBase

    import perflib

    ours = (module.name for module in pkgutil.walk_packages(perflib.__path__, "perflib."))
    for name in (*LIBRARIES, *ours):
        if not name.startswith(_NOT_IMPORTED):
            importlib.import_module(name)
    pd.set_option("display.max_columns", 20)  # pandas' default where it is imported in a kernel
    setattr(FigureCanvasBase, "print_figure", _white)  # noqa: B010 mypy knows its parameters
    setattr(seaborn._statistics, "bootstrap", _not_resampled)  # noqa: B010
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                answers.close()
                _run(json.loads(line))
                status = 0
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(ended), file=answers, flush=True)


def _white(_canvas: object, file: Any, *_given: object, **_named: object) -> None:
    """In place of a figure, a point: drawing takes longest, and its pixels are not compared."""
    if hasattr(file, "write"):
        file.write(_POINT)
    else:
        Path(file).write_bytes(_POINT)


def _not_resampled(values: Any, *_given: object, **_named: object) -> Any:
    """In place of a thousand means for the bars of a figure that is not drawn."""
    return values


def _run(request: dict[str, Any]) -> None:
    """Execute one notebook, in the child."""
    signal.alarm(NOTEBOOK_S)
    path = Path(request["notebook"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(path.parent)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    _set(notebook, request["parameters"])
    run_cells(notebook, stop_at_error=request["stop_at_error"])
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


def run_cells(notebook: Any, *, stop_at_error: bool = True) -> None:
    """Execute a notebook's cells in this process; it gets their outputs."""
    from ipykernel.inprocess.blocking import BlockingInProcessKernelClient
    from ipykernel.inprocess.ipkernel import InProcessKernel

    kernel = InProcessKernel(user_ns={})  # type: ignore[no-untyped-call]
    client = BlockingInProcessKernelClient(kernel=kernel, session=kernel.session)
    client.start_channels()  # type: ignore[no-untyped-call]
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type != "code":
            continue
        cell.outputs, cell.execution_count = [], number
        client.execute(cell.source)
        for message in client.iopub_channel.get_msgs():
            kind = message["header"]["msg_type"]
            if kind in ("stream", "display_data", "execute_result", "error"):
                _add(cell.outputs, nbformat.v4.output_from_msg(message))  # type: ignore[no-untyped-call]
        if stop_at_error and any(one.output_type == "error" for one in cell.outputs):
            break


def _set(notebook: Any, parameters: Mapping[str, Any]) -> None:
    if not parameters:
        return
    source = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    (index,) = (
        index
        for index, cell in enumerate(notebook.cells)
        if "parameters" in cell.metadata.get("tags", [])
    )
    made = nbformat.v4.new_code_cell(source)  # type: ignore[no-untyped-call]
    notebook.cells.insert(index + 1, made)


def _add(outputs: list[Any], output: Any) -> None:
    """As a notebook keeps them: what one stream has written in a row is one output."""
    if outputs and outputs[-1].output_type == output.output_type == "stream":
        last = outputs[-1]
        if last.name == output.name:
            last.text += output.text
            return
    outputs.append(output)


if __name__ == "__main__":
    _serve()
