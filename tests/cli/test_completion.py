"""TAB completion: by asking click, and once in a real bash."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from perflib.cli import cli
from perflib.experiments import NAMES, get
from perflib.store.run_files import runs_dir

OLD, NEW = "kv_per_core-20261101-074507-1a2b", "machine-20261102-074507-node17-7k2m9qx4tb"
UNFINISHED = "machine-20261103-074507-node17-1k2m9qx4tb"


@pytest.fixture(autouse=True)
def _runs(home: Path) -> None:
    assert runs_dir().is_relative_to(home)
    runs_dir().mkdir(parents=True)
    for name in (f"{OLD}.parquet", f"{NEW}.parquet", f"{UNFINISHED}.journal"):
        (runs_dir() / name).touch()


def completed(*words: str) -> list[str]:
    """What is offered for the last word."""
    shell = ShellComplete(cli, {}, "perflib", "_PERFLIB_COMPLETE")
    return [str(item.value) for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_commands_and_experiments() -> None:
    assert {"run", "runs", "report"} <= set(completed("r"))
    assert completed("inv") == ["investigate"]
    assert completed("run", "") == list(NAMES)
    assert completed("list", "alias") == ["alias_map", "alias_environment", "alias_offsets"]
    assert completed("analyse", "kv") == ["kv_per_core"]
    assert "--preset" in completed("run", "--p")


def test_parameters_and_their_words() -> None:
    every = [f"{name}=" for name in get("kv_per_core").Params.model_fields]
    assert completed("run", "kv_per_core", "-p", "") == every
    assert completed("run", "kv_per_core", "-p", "ev") == ["events="]
    assert completed("run", "kv_per_core", "-p", "events=") == []
    jobs = ["kernel", "program", "pythia", "command"]
    assert completed("run", "kv_per_core", "-p", "job=") == [f"job={word}" for word in jobs]
    assert completed("run", "kv_per_core", "-p", "job=p") == ["job=program", "job=pythia"]
    assert completed("run", "kv_per_core", "-p", "aslr=") == ["aslr=true", "aslr=false"]
    assert "cores=groups" in completed("run", "kv_per_core", "-p", "cores=")
    assert completed("run", "kv_per_core", "-p", "fifo_priority=") == ["fifo_priority=none"]
    assert completed("run", "kv_per_core", "-p", "seed=1", "-p", "eve") == ["events="]
    assert completed("run", "-p", "ev") == []  # of which experiment?


def test_presets_are_those_of_files_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home / "perflib.toml"
    file.write_text("[presets.night.kv_per_core]\nseed = 3\n")
    monkeypatch.setenv("PERFLIB_CONFIG", str(file))
    assert completed("run", "kv_per_core", "--preset", "") == ["quick", "full", "night"]
    assert completed("run", "machine", "--preset", "") == ["quick", "full"]
    file.write_text("presets = 3\n")  # TAB says nothing of it
    assert completed("run", "kv_per_core", "--preset", "") == []


def test_runs_the_newest_first() -> None:
    assert completed("show", "") == [NEW, OLD]
    assert completed("compare", OLD, "machine-2026") == [NEW]
    assert completed("ledger", OLD, "") == completed("report", "") == [NEW, OLD]
    assert completed("run", "--resume", "") == [UNFINISHED]


def test_nothing_is_said_of_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert completed("rnu", "kv") == []
    assert completed("run", "kv_per_cor", "-p", "") == []
    assert capsys.readouterr() == ("", "")


COMPLETE = """
import io, json, os, sys
from contextlib import redirect_stdout
import perflib.cli
found = []
for words, asked in json.loads(sys.argv.pop()):
    os.environ |= {"_PERFLIB_COMPLETE": asked, "COMP_CWORD": str(len(words) - 1)}
    os.environ["COMP_WORDS"] = chr(10).join(words)
    with redirect_stdout(io.TextIOWrapper(io.BytesIO())) as out:  # bytes are written, too
        try: perflib.cli.main()
        except SystemExit as end: assert end.code == 0, end.code
    out.flush()
    found.append(out.buffer.getvalue().decode())
print(json.dumps([found, sorted({"duckdb", "numpy", "pandas"} & set(sys.modules))]))
"""


def test_completion_imports_nothing_heavy() -> None:
    cases = [
        ("perflib run kv_", ["kv_per_core"]),
        ("perflib run kv_per_core -p eve", ["events="]),
        ("perflib show kv", [OLD]),
        # bash parts words at the sign of equality
        ("perflib run kv_per_core -p job =", ["kernel", "program", "pythia", "command"]),
        ("perflib run kv_per_core -p job = pro", ["program"]),
        ("perflib run kv_per_core -p seed = 3 -p eve", ["events="]),
    ]
    shells = ["zsh", "fish", *filter(shutil.which, ["bash"])]  # bash's version is looked at
    questions = [(words.split(), "bash_complete") for words, _ in cases]
    questions += [(["perflib"], f"{shell}_source") for shell in shells]
    argv = [sys.executable, "-c", COMPLETE, json.dumps(questions)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    outputs, heavy = json.loads(done.stdout)
    assert heavy == []
    for (words, offered), output in zip(cases, outputs, strict=False):
        assert output.splitlines() == [f"plain,{word}" for word in offered], words
    for shell, output in zip(shells, outputs[len(cases) :], strict=True):
        assert "_PERFLIB_COMPLETE" in output
        assert ("nospace" in output) == (shell == "bash")
