"""TAB completion: by asking click, and once in a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from perflib.cli import cli
from perflib.experiments import NAMES, get
from perflib.model.store import runs_dir

OLD, NEW = "kv_per_core-20261101-074507-1a2b", "machine-20261102-074507-node17-7k2m9qx4tb"
UNFINISHED = "machine-20261103-074507-node17-1k2m9qx4tb"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    runs_dir().mkdir(parents=True)
    for name in (f"{OLD}.parquet", f"{NEW}.parquet", f"{UNFINISHED}.journal"):
        (runs_dir() / name).touch()
    return tmp_path


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
    assert completed("investigate", "--preset", "") == ["quick", "full"]


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


@pytest.mark.parametrize("name", NAMES)
def test_built_in_presets_are_those_offered_without_a_look(name: str) -> None:
    assert list(get(name).presets) == ["quick", "full"]


def test_runs_the_newest_first() -> None:
    assert completed("show", "") == [NEW, OLD]
    assert completed("compare", OLD, "machine-2026") == [NEW]
    assert completed("ledger", OLD, "") == completed("report", "") == [NEW, OLD]
    assert completed("run", "--resume", "") == [UNFINISHED]


def test_nothing_is_said_of_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert completed("rnu", "kv") == []
    assert completed("run", "kv_per_cor", "-p", "") == []
    assert capsys.readouterr() == ("", "")


def asked(words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line, asked as a shell asks it; which modules it imported is its last line."""
    code = (
        "import sys, perflib.cli\n"
        "try: perflib.cli.main()\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "print(sorted({'duckdb', 'numpy', 'pandas'} & set(sys.modules)), file=sys.stderr)\n"
    )
    asking = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1), **environment}
    argv = [sys.executable, "-c", code]
    return subprocess.run(argv, env=os.environ | asking, capture_output=True, text=True, check=True)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["perflib", "run", "kv_"], ["kv_per_core"]),
        (["perflib", "run", "kv_per_core", "-p", "eve"], ["events="]),
        (["perflib", "show", "kv"], [OLD]),
        # bash parts words at the sign of equality
        (
            ["perflib", "run", "kv_per_core", "-p", "job", "="],
            ["kernel", "program", "pythia", "command"],
        ),
        (["perflib", "run", "kv_per_core", "-p", "job", "=", "pro"], ["program"]),
        (["perflib", "run", "kv_per_core", "-p", "seed", "=", "3", "-p", "eve"], ["events="]),
    ],
)
def test_completion_imports_nothing_heavy(words: list[str], offered: list[str]) -> None:
    done = asked(words, _PERFLIB_COMPLETE="bash_complete")
    assert done.stdout.splitlines() == [f"plain,{word}" for word in offered]
    assert done.stderr.splitlines() == ["[]"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_lines(shell: str) -> None:
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("there is no bash here, whose version click looks at")
    done = asked(["perflib"], _PERFLIB_COMPLETE=f"{shell}_source")
    assert "_PERFLIB_COMPLETE" in done.stdout
    assert ("nospace" in done.stdout) == (shell == "bash")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("typed", "offered", "blank"),
    [
        (["perflib", "inv"], ["investigate"], True),
        (["perflib", "run", "kv"], ["kv_per_core"], True),
        (["perflib", "run", "kv_per_core", "-p", "eve"], ["events="], False),
        (["perflib", "run", "kv_per_core", "-p", "job", "=", "py"], ["pythia"], True),
        (["perflib", "show", "machine"], [NEW], True),
    ],
)
def test_in_a_real_bash(home: Path, typed: list[str], offered: list[str], blank: bool) -> None:
    program = home / "perflib"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m perflib "$@"\n')
    program.chmod(0o755)
    words = " ".join(f"'{word}'" for word in typed)
    script = (
        'eval "$(_PERFLIB_COMPLETE=bash_source perflib)"\n'
        'compopt() { echo compopt "$@"; }\n'  # bash has it within a completion only
        f"COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}\n"
        "_perflib_completion perflib\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    environment = os.environ | {"PATH": f"{home}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[:-1] == ([] if blank else ["compopt -o nospace"]) + offered
    assert done.stderr == ""
