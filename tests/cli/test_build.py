"""perflib build: bundles from the command line, and a run that has no compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perflib import experiments, kernels
from perflib.cli import build as command
from perflib.framework.jobs import copies_for
from perflib.kernels.levels import BASELINE, levels_here
from perflib.store import paths
from perflib.store.run_files import load
from tests.cli import calling

# What describes a machine and watches its cores.
ALWAYS = ("cpuid", "perf_counters", "core_probe")


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Exit status, standard output and standard error of a command, lines joined."""

    def called(*words: object) -> tuple[int, str, str]:
        code = calling.call(*map(str, words))
        out, err = capsys.readouterr()
        return code, " ".join(out.split()), " ".join(err.split())

    return called


def listed(folder: Path, level: str = BASELINE) -> list[list[Any]]:
    """Kernel, variant, copies, definitions, and whether it is a program, of each build."""
    manifest = json.loads((folder / "bundle.json").read_text())
    return [json.loads(key) for key in manifest["levels"][level]["builds"]]


def test_a_kernel_is_built_as_it_declares(tmp_path: Path, call: Call) -> None:
    code, out, _ = call("build", tmp_path / "b", "--kernel", "alias_environment")
    assert code == 0
    assert f"{tmp_path}/b: 8 builds for baseline, " in out
    assert f"export PERFLIB_KERNELS={tmp_path}/b" in out
    programs = [variant for _, variant, _, _, program in listed(tmp_path / "b") if program]
    assert None in programs
    assert sorted(one for one in programs if one) == [
        "buffer+loop+table", "buffer+table+loop", "loop+buffer+table",
        "loop+table+buffer", "table+buffer+loop", "table+loop+buffer",
    ]  # fmt: skip


def test_further_builds_are_added_for_every_level_that_there_is(tmp_path: Path, call: Call) -> None:
    code, out, _ = call("build", tmp_path, "--kernel", "clock_gaps", "--march", "native", "--json")
    assert code == 0
    (level,) = json.loads(out)["levels"]
    assert level == levels_here()[-1]
    words = ("--kernel", "random_calls", "--define", "FUNCTIONS=8", "--define", "FUNCTION_BYTES=64")
    code, out, _ = call("build", tmp_path, *words, "--json")
    found = json.loads(out)
    assert (code, found["levels"], found["builds"], found["lacking"]) == (0, [level], 1, {})
    assert len(found["bundle"]) == 64
    assert {name: dict(define) for name, _, _, define, _ in listed(tmp_path, level)} == {
        "clock_gaps": {},
        "random_calls": {"FUNCTIONS": 8, "FUNCTION_BYTES": 64},
    }


def test_copies_are_those_of_the_experiments_presets() -> None:
    copies = set(command._copies_of_presets(BASELINE))
    for name in experiments.NAMES:
        experiment = experiments.get(name)
        for preset in (None, *experiment.presets):
            params: Any = experiment.params({}, preset)
            if hasattr(params, "code_kib"):
                assert copies_for(params.code_kib) in copies
            if hasattr(params, "function_bytes"):  # as the kernel declares them
                wanted = {"FUNCTIONS": params.functions, "FUNCTION_BYTES": params.function_bytes}
                assert wanted == kernels.source("random_calls").define
    assert len(copies) == 2


@pytest.fixture
def without_a_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kernels: one compiles; one lacks a header, as those of a library that is not there."""
    folder = tmp_path / "kernels"
    shutil.copytree(paths.kernels_dir() / "common", folder / "common")
    shutil.copy(paths.kernels_dir() / "clock_gaps.c", folder)
    text = (paths.kernels_dir() / "clock_gaps.c").read_text()
    (folder / "lacking.c").write_text(text.replace("#include", "#include <nowhere.h>\n#include", 1))
    monkeypatch.setattr(paths, "kernels_dir", lambda: folder)


@pytest.mark.usefixtures("without_a_header")
def test_kernel_that_does_not_compile_is_an_error_where_it_is_named(
    tmp_path: Path, call: Call
) -> None:
    code, _, err = call("build", tmp_path / "b", "--kernel", "lacking")
    assert code == 1
    assert "'lacking' does not compile" in err
    assert not (tmp_path / "b").exists()


@pytest.mark.usefixtures("without_a_header")
def test_kernel_that_does_not_compile_is_left_out_otherwise(tmp_path: Path, call: Call) -> None:
    code, out, _ = call("build", tmp_path / "b")
    assert code == 0
    assert ": 1 builds for baseline" in out
    assert "not in it: kernel 'lacking', as a library: " in out
    assert "nowhere.h: No such file" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--copies", "3"), "--copies and --define are of one kernel: name it with --kernel"),
        (("--kernel", "kv", "--kernel", "cpuid", "--define", "A=1"), "are of one kernel"),
        (("--kernel", "cpuid", "--define", "A"), "--define 'A': write NAME=VALUE with a whole"),
        (("--kernel", "random_calls", "--define", "FUNCTION=3"), "did you mean 'FUNCTIONS'"),
        (("--kernel", "clok_gaps"), "unknown kernel 'clok_gaps': did you mean 'clock_gaps'"),
        (("--kernel", "cpuid", "--copies", "2"), "declares no 'copied' part"),
        (("--march", "x86-64-v9"), "unknown level 'x86-64-v9': did you mean 'x86-64-v"),
    ],
)
def test_mistakes_are_sentences(
    words: tuple[str, ...], says: str, tmp_path: Path, call: Call
) -> None:
    code, _, err = call("build", tmp_path / "b", *words)
    assert code == 2
    assert says in err
    assert not (tmp_path / "b").exists()


# --- on a node -----------------------------------------------------------------------------------


def on_a_node(bundle: Path, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command on a machine whose PATH has no compiler, and where nothing was compiled."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    environment = os.environ | {
        "PATH": str(tmp_path / "bin"),
        "PERFLIB_CACHE": str(tmp_path / "no-cache"),
        "PERFLIB_KERNELS": str(bundle),
        "PERFLIB_PROGRESS": "none",
    }
    argv = [sys.executable, "-m", "perflib", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.slow  # a bundle with copies takes 15 s to compile
def test_run_on_a_machine_without_a_compiler(tmp_path: Path, call: Call) -> None:
    bundle = tmp_path / "bundle"
    copies = str(copies_for(100))
    assert call("build", bundle, "--kernel", "kv", "--copies", "1", "--copies", copies)[0] == 0
    assert call("build", bundle, *(word for one in ALWAYS for word in ("--kernel", one)))[0] == 0
    few = ("-p", "cores=first", "-p", "events=10", "-p", "budget_s=1")
    done = on_a_node(bundle, tmp_path, "run", "kv_per_core", *few, "-p", "code_kib=100", "--json")
    assert done.returncode == 0, done.stderr
    run = load(json.loads(done.stdout)["run"])
    assert run.samples["ok"].any()
    kernel = run.provenance["kernel"]
    assert kernel["copies"] == int(copies)
    assert kernel["bundle"]["level"] == BASELINE
    assert kernel["bundle"]["compiled_here"] is False
    assert not (tmp_path / "no-cache").exists()

    larger = on_a_node(bundle, tmp_path, "run", "kv_per_core", *few, "-p", "code_kib=500")
    assert larger.returncode == 2
    said = " ".join(larger.stderr.split())
    assert "there is no C compiler here. Where there is one: perflib build" in said
    assert f"--kernel kv --copies {copies_for(500)}" in said

    shutil.rmtree(bundle)
    gone = on_a_node(bundle, tmp_path, "run", "kv_per_core", *few)
    assert gone.returncode == 2
    assert "there is no such folder" in gone.stderr
    assert "Traceback" not in gone.stderr


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("everything") / "bundle"
    argv = [sys.executable, "-m", "perflib", "build", str(folder)]
    subprocess.run(argv, check=True, capture_output=True)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", experiments.NAMES)
def test_every_experiment_finds_its_kernels(everything: Path, name: str, tmp_path: Path) -> None:
    words = ("run", name, "--preset", "quick", "-p", "budget_s=5", "--json")
    done = on_a_node(everything, tmp_path, *words)
    assert "not in the bundle" not in done.stderr
    assert "no C compiler" not in done.stderr
    assert done.returncode == 0 or "perf" in done.stderr or "NUMA" in done.stderr, done.stderr
    assert not (tmp_path / "no-cache").exists()
