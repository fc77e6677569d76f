from __future__ import annotations

import os
from pathlib import Path

import pytest

from perflib.cli.build import bundled
from perflib.fleet.nodes import Node
from perflib.fleet.plan import Plan, create, planned


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with what kv_per_core needs."""
    folder = tmp_path_factory.mktemp("kernels") / "bundle"
    bundled(folder, names=("kv", "clock_gaps"))
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store, and a folder for what nodes keep for themselves."""
    for name, variable in (("data", "PERFLIB_HOME"), ("node", "TMPDIR")):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(tmp_path / name))
    for name in [one for one in os.environ if one.startswith("SLURM")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "node"))
    return tmp_path


@pytest.fixture
def plan(home: Path, kernels: Path) -> Plan:
    """One row, which this host measures within three seconds."""
    farm = [Node("n1", os.uname().nodename)]
    rows = planned(farm, ["kv_per_core"], {"budget_s": "0.3", "cores": "first"}, None, 120)
    return create(home / "plan", farm, rows, kernels)
