"""What is built, installed as a user installs it: the core alone, and a source distribution."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_packaging import TOP, build

pytestmark = pytest.mark.slow
NOT_IN_THE_CORE = {"IPython", "ipykernel", "ipywidgets", "jupyterlab", "matplotlib", "seaborn"}


def run(*words: str | Path, where: Path, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYTEST"))
    }
    own = {"PERFLIB_HOME": str(home), "PERFLIB_PROGRESS": "none"}
    return subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=where, env=environment | own
    )


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment in which the wheel alone was installed."""
    folder = tmp_path_factory.mktemp("core")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip: list[str | Path] = [venv / "bin" / "pip", "--disable-pip-version-check", "-q"]
    reached = run(*pip, "download", "--no-deps", "click", where=folder, home=folder)
    if reached.returncode:
        pytest.skip("no index of packages can be reached from here")
    wheel = build("wheel", TOP, folder / "wheel")
    done = run(*pip, "install", str(wheel), where=folder, home=folder)
    assert done.returncode == 0, done.stderr
    return venv / "bin"


def test_the_core_alone_measures_and_analyses(core: Path, tmp_path: Path) -> None:
    probe = f"import importlib.util as u; print([m for m in {NOT_IN_THE_CORE} if u.find_spec(m)])"
    assert run(core / "python", "-c", probe, where=tmp_path, home=tmp_path).stdout.strip() == "[]"
    asked = ["kv_per_core", "-p", "budget_s=2", "-p", "events=5", "--json"]
    measured = run(core / "perflib", "run", *asked, where=tmp_path, home=tmp_path)
    assert measured.returncode == 0, measured.stderr
    result = json.loads(measured.stdout)
    assert result["findings"]
    shown = run(core / "perflib", "show", result["run"], where=tmp_path, home=tmp_path)
    assert shown.returncode == 0, shown.stderr
    for words in (["list"], ["runs"], ["ledger"], ["doctor", "--json"], ["list", "threads"]):
        done = run(core / "perflib", *words, where=tmp_path, home=tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [(["report", "x.parquet"], "report"), (["lab", "here"], "lab"), (["batch", "x.ipynb"], "lab")],
)
def test_what_the_core_lacks_is_named_with_its_install(
    core: Path, tmp_path: Path, words: list[str], extra: str
) -> None:
    done = run(core / "perflib", *words, where=tmp_path, home=tmp_path)
    assert done.returncode == 2
    assert f"pip install 'perflib-jupyter[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_interface_of_notebooks_names_it_too(core: Path, tmp_path: Path) -> None:
    code = "import perflib as pl; pl.experiment('kv_per_core').form()"
    done = run(core / "python", "-c", code, where=tmp_path, home=tmp_path)
    assert re.search(r"UserError: .*pip install 'perflib-jupyter\[lab\]'", done.stderr)


@pytest.mark.timeout(900)
def test_tests_pass_from_the_source_distribution(tmp_path: Path) -> None:
    import shutil

    shutil.unpack_archive(
        build("sdist", TOP, tmp_path / "built"), tmp_path / "there", filter="data"
    )
    (source,) = (tmp_path / "there").iterdir()
    where = "import perflib; print(perflib.__file__)"
    found = run(sys.executable, "-c", where, where=source, home=tmp_path)
    assert Path(found.stdout.strip()).is_relative_to(source)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    parts = ["test_packaging.py", "model/test_recorded.py", "stats/test_family.py"]
    done = run(*words, *(f"tests/{part}" for part in parts), where=source, home=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]
