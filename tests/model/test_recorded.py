"""What a run records: all of it is documented, and nothing of it is the user's home or name."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.model import recorded
from perflib.model.recorded import is_fixed, row_of, unlisted, without_user
from perflib.store import run_files

HOMES = "/home"


def test_what_is_new_is_missed() -> None:
    provenance: dict[str, Any] = {
        "machine": {"hostname": "x", "serial": "1", "settings": {"any": "1"}},
        "conditions": [{"requested": {"cpu": 0, "umask": 0}}, {"violated": []}],
        "versions": {"numpy": {"deep": 1}, "new": "1"},
        "user": None,
    }
    assert list(unlisted(provenance)) == [
        "machine.serial",
        "conditions.requested.umask",
        "versions.numpy.deep",
        "versions.new",
        "user",
    ]


def test_keys_of_the_list_are_distinguished_from_those_of_a_run() -> None:
    assert is_fixed(("machine", "hostname"))
    assert is_fixed(("machine",))
    assert is_fixed(("tasks", "3", "name"))
    assert not is_fixed(("tasks", "3"))
    assert not is_fixed(("conditions", "requested", "environment", "HOME"))
    assert not is_fixed(("new",))
    found = row_of(("tasks", "3", "name"))
    assert found is not None
    assert found.anonymous == "process"
    assert row_of(("tasks",)) is None


# --- what stays out -------------------------------------------------------------------------------


@pytest.fixture
def zaphod(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOME": f"{HOMES}/zaphodb/", "USER": "zaphodb", "LOGNAME": "zb2"}.items():
        monkeypatch.setenv(name, value)
    entry = SimpleNamespace(pw_dir=f"/nfs{HOMES}/zaphodb", pw_name="zaphodb")
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)


@pytest.mark.usefixtures("zaphod")
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"{HOMES}/zaphodb/.cache/perflib/kv --events 3", "~/.cache/perflib/kv --events 3"),
        (f"/nfs{HOMES}/zaphodb", "~"),
        (f"see '{HOMES}/zaphodb'.", "see '~'."),
        (f"{HOMES}/zaphodbeeble/x", f"{HOMES}/zaphodbeeble/x"),
        ("/scratch/zaphodb/x and /data/zb2", "/scratch/$USER/x and /data/$USER"),
        ("/scratch/zaphodb-old", "/scratch/zaphodb-old"),
        (f"/srv{HOMES}/zaphodb/x", "/srv/home/$USER/x"),
        ("zaphodb said so", "zaphodb said so"),
    ],
)
def test_paths_lose_home_and_name(text: str, kept: str) -> None:
    assert without_user(text) == kept
    assert without_user({"a": [{text: text}, 1, None]}) == {"a": [{text: kept}, 1, None]}


@pytest.mark.usefixtures("zaphod")
def test_samples_lose_them_too_and_nothing_else() -> None:
    path = f"{HOMES}/zaphodb/lib.so"
    samples = pd.DataFrame(
        {
            "object": [path, None, "[kernel]"] * 2,
            "kind": pd.Categorical([path, "b", "b"] * 2),
            "cpu": np.arange(6),
            "time_ns": pd.array([1, None, 3] * 2, "Int64"),
        }
    )
    found = without_user(samples)
    assert found["object"].fillna("").tolist() == ["~/lib.so", "", "[kernel]"] * 2
    assert found["kind"].tolist() == ["~/lib.so", "b", "b"] * 2
    pd.testing.assert_frame_equal(found[["cpu", "time_ns"]], samples[["cpu", "time_ns"]])
    assert samples["object"][0] == path, "the table that was given stays"


def test_root_and_a_user_without_a_name_are_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "USER", "LOGNAME"):
        monkeypatch.delenv(name, raising=False)
    assert recorded.names_of_user() == (set(), set())
    monkeypatch.setenv("USER", "root")
    monkeypatch.setenv("HOME", "/")
    assert recorded.names_of_user() == (set(), set())
    assert without_user("/lib/root/x") == "/lib/root/x"


def test_a_measured_run_holds_nothing_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels are compiled in the user's home, and the job's command line names them there."""
    home = tmp_path / "home" / "zaphodb"
    home.mkdir(parents=True)
    for name, value in {"HOME": str(home), "USER": "zaphodb", "LOGNAME": "zaphodb"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PERFLIB_HOME", str(home / "data"))
    monkeypatch.setenv("PERFLIB_CACHE", str(home / "cache"))
    experiment = get("kv_per_core")
    given = {"job": "program", "events": 2, "budget_s": 0.5, "cores": "first"}
    run = run_files.load(experiment.measure(experiment.params(given)).id)
    assert run.provenance["job"].startswith("~/cache/")
    texts = []

    def note(text: str) -> str:
        texts.append(text)
        return text

    recorded.change_texts([run.params, run.provenance, run.samples], note)
    assert len(texts) > 20
    assert [text for text in texts if "zaphodb" in text] == []
    assert list(unlisted(run.provenance)) == []
    assert os.environ["USER"] not in run.id
