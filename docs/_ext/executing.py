"""Notebooks executed with recorded runs, as the site shows them."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from prepare import ROOT, content_key, folder, in_two_processes

__all__ = ["WIDGET", "execute_all", "key_of", "notebooks", "readable"]

WIDGET = "application/vnd.jupyter.widget-view+json"
_NOTE = "*In JupyterLab: a form, a button or a slider. It needs a running notebook.*"
_BARE = re.compile(r"[\w.]+\(")  # how a widget calls itself that says nothing of its own
_TIMEOUT_S = 280
_FOLDED = {"solution": "the solution", "parameters": "the parameters"}


def notebooks() -> list[Path]:
    """Every notebook, those of the course included."""
    found = sorted((ROOT / "notebooks").rglob("*.ipynb"))
    return [path for path in found if ".ipynb_checkpoints" not in path.parts]


def key_of(path: Path) -> str:
    """A name for what this notebook gives with this perflib."""
    return content_key(Path(__file__).read_bytes(), path.read_bytes(), recording_for(path))


def recording_for(path: Path) -> str:
    """The recorded machine that a notebook is executed with; empty where it can name none."""
    from perflib.framework.recordings import machine_for

    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return machine_for(path) if re.search(r"^recorded\b.*= ", code, re.MULTILINE) else ""


def execute(path: str, recorded: str, out: str) -> str:
    """Execute one notebook and write it as it is shown; returns what went wrong, or nothing."""
    import papermill

    target = Path(out)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="perflib-site-") as scratch:
        os.environ |= {
            "PERFLIB_HOME": str(Path(scratch, "home")),
            "PERFLIB_CONFIG": "none",
            "PERFLIB_PROGRESS": "none",
        }
        os.environ.pop("PERFLIB_SOLUTIONS", None)
        done = Path(scratch, "done.ipynb")
        wrong = ""
        try:
            papermill.execute_notebook(
                path, done, {"recorded": recorded} if recorded else {}, cwd=scratch,
                kernel_name="python3", progress_bar=False, execution_timeout=_TIMEOUT_S,
                extra_arguments=["--log-level=ERROR"],
            )  # fmt: skip
        except papermill.PapermillExecutionError as error:
            wrong = f"{Path(path).name}, cell {error.cell_index}: {error.ename}: {error.evalue}"
        measured = sorted(one.name for one in Path(scratch, "home").rglob("*.parquet"))
        if measured and not wrong:
            wrong = f"{Path(path).name} measured on this machine: {', '.join(measured)}"
        notebook = json.loads(done.read_text(encoding="utf-8"))
    target.write_text(json.dumps(readable(notebook)), encoding="utf-8")
    target.with_suffix(".txt").write_text(wrong, encoding="utf-8")
    return wrong


def readable(notebook: dict[str, Any]) -> dict[str, Any]:
    """A notebook for reading: no widgets, a text for each picture, no paths of a machine."""
    notebook["metadata"].pop("papermill", None)
    notebook["metadata"].pop("widgets", None)
    said = "figure"
    for cell in notebook["cells"]:
        cell["metadata"].pop("papermill", None)
        if cell["cell_type"] == "markdown":
            said = _first_sentence("".join(cell["source"])) or said
            continue
        if cell["cell_type"] != "code":
            continue
        for tag, what in _FOLDED.items():
            if tag in cell["metadata"].get("tags", ()):
                cell["metadata"]["tags"].append("hide-input")
                cell["metadata"]["mystnb"] = {"code_prompt_show": f"Show {what}"}
        for output in cell["outputs"]:
            if WIDGET in output.get("data", ()):
                output["data"] = {
                    "text/markdown": _note("".join(output["data"].get("text/plain", "")))
                }
                output["metadata"] = {}
            if "image/png" in output.get("data", ()):
                alt = output.get("metadata", {}).get("image/png", {}).get("alt") or said
                cell["metadata"].setdefault("mystnb", {})["image"] = {"alt": alt}
    return notebook


def _note(plain: str) -> str:
    """What stands in a widget's place: what it says of itself, and that it needs a notebook."""
    fence = "`" * max([3, *(len(one) + 1 for one in re.findall("`+", plain))])
    says = "" if not plain or _BARE.match(plain) else f"{fence}text\n{plain}\n{fence}\n\n"
    return says + _NOTE


def _first_sentence(text: str) -> str:
    """The first sentence of prose, without Markdown's signs."""
    for paragraph in re.split(r"\n\s*\n", text):
        plain = re.sub(r"[*_`#$]|\[|\]\([^)]*\)", "", " ".join(paragraph.split())).strip()
        if plain and not plain.startswith(("|", "<", "-")):
            return re.split(r"(?<=[.:?!])\s", plain)[0].rstrip(":")[:200]
    return ""


def execute_all(which: slice = slice(None)) -> dict[str, tuple[Path, str]]:
    """Of each notebook, by path from the root without suffix: the executed one, what went wrong.

    ``which`` of all; what is unchanged is not executed again.
    """
    found = {
        path: folder() / "notebooks" / f"{path.stem}-{key_of(path)}.ipynb"
        for path in notebooks()[which]
    }
    wanted = [
        (str(path), recording_for(path), str(out))
        for path, out in found.items()
        if _went_wrong(out) != ""
    ]
    if wanted:
        in_two_processes(execute, sorted(wanted, key=lambda task: -Path(task[0]).stat().st_size))
    return {
        str(path.relative_to(ROOT).with_suffix("")): (out, _went_wrong(out) or "")
        for path, out in found.items()
    }


def _went_wrong(out: Path) -> str | None:
    """What went wrong when it was made, or nothing; ``None`` where it is not made yet."""
    says = out.with_suffix(".txt")
    return says.read_text(encoding="utf-8") if says.is_file() else None
