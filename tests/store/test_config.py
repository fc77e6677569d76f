"""Configuration files: which count, what they may say, and that every interface agrees."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import perflib as pl
from perflib import experiments
from perflib.framework import configured
from perflib.lab.form import Form
from perflib.lab.notebook import parameters
from perflib.measure.progress import Reporter
from perflib.model.errors import UserError
from perflib.store import config
from perflib.store.run_files import runs_dir
from tests.cli.calling import call, call_json, too_wide

KV = experiments.get("kv_per_core")


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file, and a project in whose subfolder one works."""
    for name in ("PERFLIB_CONFIG", "PERFLIB_HOME", "PERFLIB_PROGRESS", "PERFLIB_TAG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    inner = tmp_path / "project" / "deep" / "down"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    file = config.user_path()
    file.parent.mkdir(parents=True)
    return file


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path / "project" / "perflib.toml"


def kv(**given: object) -> dict[str, object]:
    return configured.params(KV, given).model_dump()


def test_without_files_everything_is_built_in() -> None:
    assert config.files() == []
    assert config.runs_dir().origin == "built in"
    assert config.progress() is None
    assert configured.params(KV, {}, "quick") == KV.params({}, "quick")
    assert configured.documentation(KV) == KV.documentation()


def test_the_order_is_given_preset_project_user_built_in(user: Path, project: Path) -> None:
    user.write_text("[defaults.kv_per_core]\nevents = 9\nseed = 9\nslice_us = 90\n")
    project.write_text("[defaults.kv_per_core]\nevents = 8\nseed = 8\n")
    found = kv(seed=7)
    assert (found["seed"], found["events"], found["slice_us"]) == (7, 8, 90)
    assert found["trial_ms"] == 100
    assert configured.params(KV, {}, "quick").budget_s == 40
    project.write_text("[defaults.kv_per_core]\nbudget_s = 3\n")
    assert configured.params(KV, {}).budget_s == 3
    assert configured.params(KV, {}, "quick").budget_s == 40
    assert experiments.get("machine").params({}).budget_s == 20


def test_presets_of_files_are_known_and_change_built_in_ones(user: Path, project: Path) -> None:
    user.write_text("[presets.night.kv_per_core]\nbudget_s = 3600\nevents = 7\n")
    project.write_text(
        "[presets.night.kv_per_core]\nevents = 8\n[presets.quick.kv_per_core]\nseed=2"
    )
    assert configured.presets(KV)["night"] == {"budget_s": 3600, "events": 8}
    assert configured.presets(KV)["quick"] == {"budget_s": 40.0, "seed": 2}
    assert "night" not in configured.presets(experiments.get("machine"))
    with pytest.raises(UserError, match="did you mean 'night'"):
        configured.params(KV, {}, "nihgt")


def test_every_interface_has_the_same_defaults(user: Path) -> None:
    user.write_text("[defaults.kv_per_core]\nevents = 9\ncores = [0]\n")
    wanted = configured.params(KV, {})
    assert (wanted.model_dump()["events"], wanted.cores) == (9, [0])
    assert pl.experiment("kv_per_core").params() == wanted
    assert "events = 9" in repr(pl.experiment("kv_per_core"))
    cell = {entry["name"]: entry["default"] for entry in KV.documentation()["parameters"]}
    assert parameters(KV, cell) == wanted
    form = Form("kv_per_core")
    form.preset.value = "(defaults)"
    assert form.fields.widgets["events"].value == "9"
    assert configured.params(KV, form.fields.given()) == wanted
    form.fields.widgets["events"].value = "50"  # the built-in default, chosen by the user
    assert configured.params(KV, form.fields.given()).model_dump()["events"] == 50


def test_the_store_is_of_the_environment_the_project_or_the_user(
    user: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.write_text('store = "~/measured"\n')
    assert runs_dir() == Path("~/measured").expanduser()
    project.write_text('store = "deep/runs"\n')
    assert runs_dir() == project.parent / "deep/runs"
    assert config.runs_dir().origin == f"{project}, store"
    monkeypatch.setenv("PERFLIB_HOME", "/elsewhere")
    assert config.runs_dir() == (Path("/elsewhere/runs"), "PERFLIB_HOME")


def test_progress_is_of_the_environment_or_a_file(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.write_text('progress = "none"\n')
    assert Reporter("x")._mode == "none"
    monkeypatch.setenv("PERFLIB_PROGRESS", "log")
    assert Reporter("x")._mode == "log"


def test_the_variable_names_another_project_file_or_none(
    user: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.write_text("[defaults.kv_per_core]\nseed = 9\n")
    project.write_text("[defaults.kv_per_core]\nevents = 8\n")
    other = tmp_path / "other.toml"
    other.write_text("[defaults.kv_per_core]\nevents = 5\n")
    monkeypatch.setenv("PERFLIB_CONFIG", str(other))
    assert (kv()["events"], kv()["seed"]) == (5, 9)
    monkeypatch.setenv("PERFLIB_CONFIG", "none")
    assert (kv()["events"], kv()["seed"]) == (50, 1)
    monkeypatch.setenv("PERFLIB_CONFIG", "nowhere.toml")
    with pytest.raises(UserError, match=r"PERFLIB_CONFIG: there is no file nowhere.toml"):
        kv()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stor = 'x'", "unknown key 'stor': did you mean 'store'"),
        ("store = 3", 'store: 3 is no folder: write store = "FOLDER"'),
        ("store = ''", "is no folder"),
        ("progress = 'lgo'", "progress: unknown word 'lgo': did you mean 'log'"),
        ("progress = 1", "progress: unknown word '1'"),
        ("defaults = 1", r"defaults: 1 is no table: write \[defaults.EXPERIMENT\]"),
        ("[defaults]\nkv_per_core = 3", "defaults.kv_per_core: 3 is no table"),
        ("[presets.night]\nseed = 3", "presets.night.seed: 3 is no table"),
        ("[defaults.kv_per_cor]\nseed = 3", "did you mean 'kv_per_core'"),
        ("[presets.night.kv_per_cor]\nseed = 3", "did you mean 'kv_per_core'"),
        ("[defaults.kv_per_core]\nevnets = 3", "did you mean 'events'"),
        ("[defaults.kv_per_core]\nevents = 'x'", r"\[defaults.kv_per_core\]: parameter 'events'"),
        ("[presets.night.kv_per_core]\nevents = 0", "parameter 'events'.*>= 1"),
        ("store = [", "is no TOML"),
        ("store = " + 5000 * "[", "is no TOML: nested too deeply"),
        ('store = "a\\u0000"', "is no folder"),
        ("\xff", "is no TOML"),
    ],
)
@pytest.mark.parametrize("whose", ["user", "project"])
def test_mistakes_are_a_sentence_with_file_and_key(
    text: str, says: str, whose: str, request: pytest.FixtureRequest
) -> None:
    file: Path = request.getfixturevalue(whose)
    file.write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=says) as caught:
        configured.params(experiments.get("kv_per_core"), {})
    assert str(caught.value).startswith(str(file))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[defaults.kv_per_core]\njob_command = 'rm x'", "text, which may name a program to run"),
        ("[defaults.kv_per_core]\npreload = ['/x.so']", "a library to load"),
        ("[defaults.machine]\nenvironment = {LD_PRELOAD = '/x.so'}", "'environment' is text"),
        ("[defaults.machine]\nsettings = {thp = 'always'}", "'settings' is text"),
        ("[presets.quick.kv_per_core]\njob_command = 'rm x'", "text, which may name a program"),
        ("store = '../elsewhere'", "outside the project's folder"),
        ("store = '/etc'", "outside the project's folder"),
        ("store = 'link'", "outside the project's folder"),
    ],
)
def test_a_project_that_came_from_anywhere_sets_data_only(
    text: str, says: str, project: Path
) -> None:
    (project.parent / "link").symlink_to("/etc")
    project.write_text(text)

    def used() -> None:
        for name in ("kv_per_core", "machine"):
            configured.params(experiments.get(name), {}, "quick")

    with pytest.raises(UserError, match=says):
        used()


def test_what_does_not_go_together_is_complained_of_where_it_is_used(user: Path) -> None:
    user.write_text("[defaults.kv_per_core]\njob_command = 'sim {first}'\n")
    assert kv(job="command")["job_command"] == "sim {first}"
    with pytest.raises(UserError, match=r"go together\. Some values come from .*perflib\.toml"):
        kv()


def test_a_file_that_another_user_could_have_put_is_no_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write_text("[defaults.kv_per_core]\nseed = 8\n")
    assert kv()["seed"] == 8
    project.chmod(0o666)
    assert kv()["seed"] == 1
    project.chmod(0o644)
    owner = project.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert kv()["seed"] == (8 if owner == 0 else 1)


# --- perflib config ------------------------------------------------------------------------------


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, tuple[Any, str]]:
    settings = call_json(capsys, "config", *words, "--json")["settings"]
    return {key: (one["value"], one["origin"]) for key, one in settings.items()}


def test_every_value_is_shown_with_its_origin(
    user: Path, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    user.write_text('progress = "log"\n[defaults.machine]\nspin_ms = 50\nseed = 3\n')
    project.write_text("[defaults.machine]\nseed = 4\n[presets.night.machine]\nbudget_s = 9\n")
    monkeypatch.setenv("PERFLIB_TAG", "mine")
    found = shown(capsys)
    assert found["progress"] == ("log", f"{user}, progress")
    assert found["tag"] == ("mine", "PERFLIB_TAG")
    assert found["defaults.machine.spin_ms"] == (50, f"{user}, [defaults.machine]")
    assert found["defaults.machine.seed"] == (4, f"{project}, [defaults.machine]")
    assert found["presets.night.machine.budget_s"] == (9, f"{project}, [presets.night.machine]")
    assert "defaults.machine.gap_us" not in found
    assert shown(capsys, "machine")["defaults.machine.gap_us"] == (1.0, "built in")
    call("config")
    out = capsys.readouterr().out
    assert "defaults.machine.seed = 4\n    " in out
    assert f"read: {project}" in " ".join(out.split())
    assert not too_wide(out)


def test_a_mistake_is_exit_2(user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user.write_text("[defaults.machine]\nspn_ms = 50\n")
    assert call("config") == 2
    assert "did you mean 'spin_ms'" in capsys.readouterr().err
