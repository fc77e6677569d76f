"""papermill over notebooks and parameter sets: one output each, and what became of it.

Each notebook is executed by a papermill process of its own, so that a killed kernel, a time-out or
a damaged notebook costs that one output. The kernel is this very Python, whatever kernels the user
has registered under the name ``python3``.

A notebook is executed into ``NAME.unfinished.ipynb`` and takes the place of ``NAME.ipynb`` when it
has succeeded: what failed or was killed stays under the first name, and an earlier good output
stays as it is. A good output says of which notebook and parameters it was made.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from perflib.framework.params import Params, assignments
from perflib.measure import launch
from perflib.measure.conditions import Conditions
from perflib.model.errors import UserError, choose
from perflib.store import config
from perflib.store.files import json_of
from perflib.store.run_files import runs_dir

ParameterSet = Mapping[str, Any]
_WORDS = {"none": None, "null": None, "true": True, "false": False}
_DEAD_KERNEL = 138  # papermill's exit status
_GRACE_S = 20.0
_STILL_S = 60.0  # how often a line says that a notebook is still running
_MARK = "perflib"  # the key, in a good output's metadata, of what it was made of
_BEFORE = "succeeded before, with the same notebook and parameters"


@dataclass(frozen=True)
class Outcome:
    """What became of one notebook with one parameter set.

    ``output`` is the executed notebook; of one that failed, as far as it got. ``state``: it
    ``succeeded``, it ``failed``, it was ``skipped`` because an earlier output is good, or it is
    ``absent`` because this machine cannot measure it. ``message`` says in a sentence why it did not
    succeed now. ``runs`` are the saved runs that the executed notebook names.
    """

    notebook: Path
    parameters: ParameterSet
    output: Path
    state: Literal["succeeded", "failed", "skipped"]
    message: str
    seconds: float
    runs: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """What ``perflib batch --json`` prints of it."""
        return {
            "notebook": str(self.notebook),
            "parameters": _plain(self.parameters),
            "output": str(self.output),
            "state": self.state,
            "message": self.message,
            "seconds": round(self.seconds, 1),
            "runs": list(self.runs),
        }


def _plain(parameters: ParameterSet) -> dict[str, Any]:
    """Parameters as JSON holds them: YAML has dates, and NaN is no JSON."""
    plain: dict[str, Any] = json.loads(
        json.dumps(dict(parameters), default=str), parse_constant=str
    )
    return plain


def load_sets(path: Path) -> list[dict[str, Any]]:
    """Parameter sets from a file: a YAML or JSON list of mappings, or a CSV with a set a row.

    Raises
    ------
    UserError
        There is no such file, or it holds no such list.
    """
    readers = {".yaml": _yaml, ".yml": _yaml, ".json": _yaml, ".csv": _csv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        msg = f"{path}: parameter sets are read from .yaml, .json or .csv files"
        raise UserError(msg)
    try:
        found = reader(path)
    except (OSError, ValueError, RecursionError, csv.Error, yaml.YAMLError) as error:
        deep = isinstance(error, RecursionError)
        why = "it is nested too deeply" if deep else " ".join(str(error).split())
        msg = f"{path} cannot be read: {why}"
        raise UserError(msg) from error
    if isinstance(found, dict):
        found = [found]
    if not isinstance(found, list) or not found:
        msg = f"{path} holds no parameter sets: write a list of 'name: value' mappings"
        raise UserError(msg)
    for number, one in enumerate(found, 1):
        if not isinstance(one, dict) or not all(isinstance(name, str) for name in one):
            msg = f"{path}: set {number} is no mapping of names to values, but {one!r}"
            raise UserError(msg)
    return found


class _Once(yaml.SafeLoader):
    """YAML in which a key that is given twice is an error, and not the last one's value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        _no_key_twice(str(key.value) for key, _ in node.value)
        return super().construct_mapping(node, deep=deep)


def _no_key_twice(keys: Iterable[str]) -> None:
    twice = [key for key, times in Counter(keys).items() if times > 1]
    if twice:
        msg = f"parameter {twice[0]!r} is given twice"
        raise ValueError(msg)


def _yaml(path: Path) -> Any:
    loader = _Once(path.read_text(encoding="utf-8-sig"))  # JSON is YAML
    return loader.get_single_data()


def _csv(path: Path) -> list[dict[str, Any]]:
    """A set a row; an empty value is not given. Spreadsheets write semicolons in some countries."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        delimiter = max((",", ";", "\t"), key=file.readline().count)
        file.seek(0)
        header, *rows = list(csv.reader(file, delimiter=delimiter)) or [[]]
    _no_key_twice(header)
    for number, row in enumerate(rows, 1):
        if len(row) > len(header):
            msg = f"row {number} has {len(row)} values for {len(header)} parameters"
            raise ValueError(msg)
    named = [zip(header, row, strict=False) for row in rows if row]
    return [{name: _value(text) for name, text in row if text} for row in named]


def parse_assignments(words: Iterable[str]) -> dict[str, Any]:
    """``KEY=VALUE`` words as one parameter set.

    >>> parse_assignments(["events=50", "fifo_priority=none", "cores=0-3"])
    {'events': 50, 'fifo_priority': None, 'cores': '0-3'}
    """
    return {name: _value(text) for name, text in assignments(words).items()}


def _value(text: str) -> Any:
    """What a notebook's cell would hold: no value, a truth value, JSON such as a number, or text.

    A notebook need not belong to an experiment, so that no declared type distinguishes them.
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json_of(text)
    except ValueError:
        return text


def batch(
    notebooks: Sequence[Path],
    parameter_sets: Sequence[ParameterSet],
    out: Path,
    *,
    timeout_s: float | None = None,
    skip_done: bool = False,
    done: Callable[[Outcome], None] | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Outcome]:
    """Execute every notebook with every parameter set.

    Parameters
    ----------
    notebooks
        The notebooks; they stay as they are.
    parameter_sets
        What is put in place of the notebooks' parameters; none means once, as they stand.
    out
        The folder of the executed notebooks.
    timeout_s
        The longest that one notebook may take.
    skip_done
        Leave out what succeeded before: its output is there, made from the same notebook with the
        same parameters.
    done
        Called after each.
    progress
        Called with a line when a notebook begins, and now and then while it runs.

    Raises
    ------
    UserError
        A notebook does not exist, or has no such parameter; nothing was executed.
    """
    for notebook in notebooks:
        if not notebook.is_file():
            msg = f"there is no notebook {notebook}"
            raise UserError(msg)
    say = progress or (lambda _line: None)
    sets = list(parameter_sets) or [{}]
    for notebook in notebooks:
        _check_names({name: None for one in sets for name in one}, notebook)
    outputs = iter(_outputs(notebooks, len(sets), out))
    works = [(notebook, one, next(outputs)) for notebook in notebooks for one in sets]
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="perflib-batch-") as scratch:
        environment = _environment(Path(scratch))
        for number, (notebook, parameters, output) in enumerate(works, 1):
            mark = {
                "notebook_sha256": hashlib.sha256(notebook.read_bytes()).hexdigest(),
                "parameters": _plain(parameters),
            }
            again = _why_again(output, mark) if skip_done else ""
            if skip_done and not again:
                outcome = Outcome(notebook, parameters, output, "skipped", _BEFORE, 0.0)
            else:
                title = f"{output.name} ({number} of {len(works)})"
                say(f"{title} begins{again and f': {again}'}")
                outcome = _execute(notebook, parameters, output, environment, timeout_s, title, say)
                if outcome.state == "succeeded":
                    _keep(outcome.output, mark, output)
                    outcome = replace(outcome, output=output)
            outcomes.append(outcome)
            if done is not None:
                done(outcome)
    return outcomes


def _check_names(given: Iterable[str], notebook: Path) -> None:
    """Whether a cell that is tagged ``parameters`` assigns each name; else it would do nothing."""
    try:
        cells = json_of(notebook.read_text(encoding="utf-8"))["cells"]
        tagged = [one for one in cells if "parameters" in one["metadata"].get("tags", ())]
        source = "\n".join("".join(one["source"]) for one in tagged)
        assigned = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    except (LookupError, TypeError, AttributeError, ValueError, SyntaxError):
        return  # damaged, or not Python: its execution says so
    known = [node.id for node in assigned if isinstance(node.ctx, ast.Store)]
    if "conditions" in known:  # they may be given one by one
        known += Params.model_fields
    for name in given:
        if not tagged:
            msg = f"{notebook} has no cell tagged 'parameters': {name!r} would change nothing"
            raise UserError(msg)
        if name not in known:
            msg = f"{notebook.name}: {choose('parameter', name, known)}"
            raise UserError(msg)


def _why_again(output: Path, mark: Mapping[str, Any]) -> str:
    """Why an earlier output does not do; empty where it does."""
    if not output.exists():
        return "there is no good output yet"
    made_of = _read(output).get("metadata", {}).get(_MARK, {})
    if made_of.get("notebook_sha256") != mark["notebook_sha256"]:
        return "its output was made from another version of the notebook"
    if made_of.get("parameters") != mark["parameters"]:
        return "its output was made with other parameters"
    return ""


def _keep(unfinished: Path, mark: Mapping[str, Any], output: Path) -> None:
    """Put a good output into its place, in one step, with what it was made of."""
    content = _read(unfinished)
    content["metadata"][_MARK] = mark
    with unfinished.open("w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False, indent=1)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(output)


def _outputs(notebooks: Sequence[Path], sets: int, out: Path) -> list[Path]:
    """Where each goes: numbered where there are several sets, or notebooks of one name."""
    out.mkdir(parents=True, exist_ok=True)
    stems = [notebook.stem for notebook in notebooks]
    outputs = []
    for index, stem in enumerate(stems):
        again = stems[:index].count(stem)
        name = f"{stem}_{again + 1}" if again else stem
        outputs += [
            out / (f"{name}-{number + 1:03}.ipynb" if sets > 1 else f"{name}.ipynb")
            for number in range(sets)
        ]
    return outputs


def _environment(scratch: Path) -> dict[str, str]:
    """The environment of papermill and its kernel, which is this Python whatever is installed."""
    spec = scratch / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [sys.executable, "-P", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
    before = os.environ.get("JUPYTER_PATH")
    project = config.project_path()  # the notebooks run elsewhere, with the same defaults
    return {
        "PERFLIB_PROGRESS": "log",
        **({"PERFLIB_CONFIG": str(project)} if project else {}),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        **os.environ,
        "JUPYTER_PATH": os.pathsep.join(filter(None, (str(scratch), before))),
    }


def _execute(
    notebook: Path,
    parameters: ParameterSet,
    output: Path,
    environment: Mapping[str, str],
    timeout_s: float | None,
    title: str,
    say: Callable[[str], None],
) -> Outcome:
    """Run papermill once, next to the output; its folder is where relative paths lead."""
    begin, begin_s = time.monotonic(), time.time()
    unfinished = output.with_suffix(".unfinished.ipynb")
    unfinished.unlink(missing_ok=True)
    given = output.with_suffix(".parameters.json")
    given.write_text(json.dumps(dict(parameters), default=str))  # YAML has dates
    argv = [
        sys.executable,
        "-P",
        "-m",
        "papermill",
        str(notebook.absolute()),
        str(unfinished.absolute()),
    ]
    argv += ["-f", str(given.absolute()), "--no-progress-bar", "--cwd", str(output.parent)]
    # It dies with this process: one that continues would disturb the next batch.
    argv, _ = launch.command(Conditions(aslr=True), argv)
    with subprocess.Popen(
        argv,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        try:
            complaints = _wait(process, begin, timeout_s, title, say)
            message = _why(process.returncode, unfinished, complaints)
        except subprocess.TimeoutExpired:
            _end(process)
            message = f"took longer than {timeout_s:g} s and was ended"
        except BaseException:
            _end(process)
            raise
        finally:
            given.unlink(missing_ok=True)
    state: Literal["failed", "succeeded"] = "failed" if message else "succeeded"
    seconds = time.monotonic() - begin
    runs = _runs_named(unfinished, begin_s)
    return Outcome(notebook, parameters, unfinished, state, message, seconds, runs)


def _wait(
    process: subprocess.Popen[str],
    begin: float,
    timeout_s: float | None,
    title: str,
    say: Callable[[str], None],
) -> str:
    """Wait for papermill's end; what it wrote to standard error."""
    while True:
        spent_s = time.monotonic() - begin
        left_s = _STILL_S if timeout_s is None else timeout_s - spent_s
        try:
            return process.communicate(timeout=max(0.0, min(_STILL_S, left_s)))[1]
        except subprocess.TimeoutExpired:
            if left_s <= _STILL_S and timeout_s is not None:
                raise
            say(f"{title} still runs, {time.monotonic() - begin:.0f} s")


def _runs_named(output: Path, since_s: float) -> tuple[str, ...]:
    """The runs saved since then whose identifiers the executed notebook shows."""
    saved = {
        path.stem: made
        for path in runs_dir().glob("*.parquet")
        if (made := path.stat().st_mtime) >= since_s - 1  # file systems round times
    }
    shown = json.dumps([cell.get("outputs") for cell in _cells(output)]) if saved else ""
    return tuple(sorted((run for run in saved if run in shown), key=lambda run: saved[run]))


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupt papermill, so that it saves and ends its kernel; kill it if it does not."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _why(status: int, output: Path, complaints: str) -> str:
    """Why papermill failed, in one sentence; empty if it did not."""
    if status == 0:
        return ""
    if status == _DEAD_KERNEL:
        return f"the kernel died{_where(output)}: killed or crashed; what it had put out is kept"
    error = _error_in(output)
    if error:
        return error
    if status < 0:
        return f"papermill was killed by {signal.Signals(-status).name}"
    last = [line for line in complaints.splitlines() if line.strip()]
    return last[-1].strip() if last else f"papermill ended with status {status}"


def _read(output: Path) -> dict[str, Any]:
    """An executed notebook; nothing where it is absent or damaged."""
    try:
        content = json_of(output.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _cells(output: Path) -> list[dict[str, Any]]:
    return [cell for cell in _read(output).get("cells", []) if cell.get("cell_type") == "code"]


def _where(output: Path) -> str:
    """In which cell: the last that papermill began."""
    begun = [
        bool(cell["metadata"].get("papermill", {}).get("start_time")) for cell in _cells(output)
    ]
    return f" in code cell {len(begun) - begun[::-1].index(True)}" if any(begun) else ""


def _error_in(output: Path) -> str:
    """The last line of the exception that ended the notebook; perflib's own without its type."""
    for cell in _cells(output):
        for part in cell.get("outputs", []):
            if part.get("output_type") == "error":
                lines = str(part.get("evalue", "")).strip().splitlines() or [""]
                name = str(part.get("ename", ""))
                if name in ("UserError", "MeasurementError"):
                    return lines[0]
                return f"{name}: {lines[-1]}" if lines[-1] else name
    return ""
