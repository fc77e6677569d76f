"""Runs for somebody else: what is planted in a run is in no byte of its anonymous copy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from perflib.experiments import get
from perflib.model.errors import MeasurementError, UserError
from perflib.model.recorded import change_texts
from perflib.model.run import Run
from perflib.store import run_files
from perflib.store.export import Anonymous, export
from tests.stored import RUNS

HOMES = "/home"
HOST, USER, MACHINE_ID = "secrethost7.farm.example", "zaphodb", "5ec7e7" * 5 + "aa"
COMMAND = f"{HOMES}/zaphodb/geheim/hushsim --dataset Hushhush --events {{events}} --first {{first}}"
SECRETS = (
    "secrethost7",
    "farm.example",
    "zaphodb",
    "geheim",
    "hush",
    "my project",
    "quietd",
    "5ec7e7",
)
SENTENCE = (
    " at SecretHost7 (secrethost7.farm.example) by zaphodb: hushsim --dataset Hushhush --first 7;"
    f" {HOMES}/zaphodb/geheim/x.dat, '/scratch/my project/zaphodb', ~/geheim; -I{HOMES}/zaphodb/g"
    " LD_PRELOAD=/afs/farm/user/z/zaphodb/geheim.so:/tmp/zaphodb/geheim; zaphodb@secrethost7;"
    " ZAPHODB_DIR=file:///scratch/geheim quietd"
    " kv_per_core-20260102-030405-secrethost7-7k2m9qx4tb"
)


def planted(experiment: str, end: str = "7k2m9qx4tb", host: str = HOST) -> Run:
    """A measured run in which every text shows whose it is."""
    measured = run_files.load(RUNS / f"{experiment}.parquet")
    provenance = change_texts(measured.provenance, lambda text: text + SENTENCE)
    provenance["machine"] |= {"hostname": host, "machine_id": MACHINE_ID, "boot_id": MACHINE_ID}
    provenance["tasks"] = {"0": [{"name": "quietd", "pid": 12, "percent": 3.0}]}
    provenance["job"] = COMMAND
    provenance["unknown_key"] = {USER: {"zaphodb_dir": HOST}}
    requested = {
        "environment": {"ZAPHODB_DIR": f"{HOMES}/zaphodb/geheim"},
        "preload": ["/x/geheim.so"],
    }
    provenance["conditions"] = [{"requested": requested, "violated": [SENTENCE]}]
    params = {
        **measured.params,
        "job": "command",
        "job_command": COMMAND,
        "environment": {"ZAPHODB_DIR": "geheim/relative"},
        "preload": [f"{HOMES}/zaphodb/geheim/lib my project.so"],
    }
    few = measured.samples.head(300)
    samples = change_texts(few, lambda text: text + SENTENCE)
    samples["object"] = [f"{HOMES}/zaphodb/geheim/lib.so", "hushsim", None] * (
        len(samples) // 3
    ) + [HOST] * (len(samples) % 3)
    run_id = f"{experiment}-20260102-030405-secrethost7-{end}"
    return replace(measured, id=run_id, params=params, provenance=provenance, samples=samples)


def everything(run: Run) -> str:
    record = [run.id, run.experiment, run.params, run.provenance, list(run.samples)]
    return json.dumps(record) + run.samples.to_csv()


@pytest.mark.parametrize("experiment", ["kv_per_core", "event_profile", "threads"])
def test_nothing_that_is_planted_is_in_an_anonymous_export(experiment: str, tmp_path: Path) -> None:
    one = planted(experiment)
    before = everything(one).lower()
    assert all(secret in before for secret in SECRETS), "the test plants them all"
    run_files.save(one)
    (file,) = export(["7k2"], tmp_path / "out", anonymous=True)
    assert file.name == f"{experiment}-20260102-030405-host1-7k2m9qx4tb.parquet"
    exported = everything(run_files.load(file)).lower()
    raw = file.read_bytes().lower()
    for secret in SECRETS:
        at = exported.find(secret)
        assert at < 0, exported[max(0, at - 200) : at + 50]
        assert secret.encode() not in raw
    for beginning in ("/home", "/scratch", "/tmp", "/afs", "~/"):
        assert beginning not in exported


def test_what_is_needed_to_read_it_stays(tmp_path: Path) -> None:
    one = planted("kv_per_core")
    run_files.save(one)
    (file,) = export([one.id], tmp_path / "out", anonymous=True)
    found = run_files.load(file)
    assert found.provenance["machine"]["hostname"] == "host-1"
    assert found.provenance["machine"]["machine_id"] is None
    assert found.provenance["machine"]["memory_bytes"] == one.provenance["machine"]["memory_bytes"]
    assert found.provenance["trials"] == one.provenance["trials"]
    assert found.provenance["tasks"]["0"] == [{"name": "process-1", "pid": None, "percent": 3.0}]
    assert found.params["job_command"] == found.provenance["job"] == "job-1"
    assert found.params["events"] == one.params["events"]
    assert found.samples["time_ns"].tolist() == one.samples["time_ns"].tolist()


def test_the_words_of_every_command_line_are_nobodys() -> None:
    given = {"other_command": "./zaphodsim --key geheim", "relink": "ld -o zaphodsim hush.o sim.o"}
    one = replace(run_files.load(RUNS / "kv_per_core.parquet"))
    one.params = {**one.params, **given}
    one.provenance = {**one.provenance, "problems": ["hush.o: undefined; zaphodsim failed"]}
    hidden = Anonymous().run(one)
    assert hidden.params["other_command"] != given["other_command"]
    said = everything(hidden)
    assert not [word for word in ("zaphodsim", "geheim", "hush.o") if word in said]


TEXTS = ("counters", "event_profile", "kv_per_core", "machine", "threads")  # analyses that use some


@pytest.mark.parametrize(
    "name",
    [
        name if name in TEXTS else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(path.stem for path in RUNS.glob("*.parquet"))
    ],
)
def test_an_anonymous_run_says_what_the_run_says(name: str) -> None:
    one = run_files.load(RUNS / f"{name}.parquet")
    experiment = get(one.experiment)
    said = [(f.subject, f.verdict, f.effect) for f in experiment.analyse(one)]
    nobody = [(f.subject, f.verdict, f.effect) for f in experiment.analyse(Anonymous().run(one))]
    assert said
    assert nobody == said


def test_machines_of_one_export_are_distinguished(tmp_path: Path) -> None:
    runs = [
        planted("machine", f"{n}aaaaaaaaa", host) for n, host in enumerate([HOST, HOST, "node2"])
    ]
    runs[2].provenance["problems"] = ["secrethost7 and node2"]  # here the first is not its own host
    for one in runs:
        run_files.save(one)
    files = export([one.id for one in runs], tmp_path / "out", anonymous=True)
    hosts = [run_files.load(file).provenance["machine"]["hostname"] for file in files]
    assert hosts == ["host-1", "host-1", "host-2"]
    assert [file.name.split("-")[3] for file in files] == ["host1", "host1", "host2"]


def test_copies_of_one_image_are_distinguished_by_their_machine_id() -> None:
    nobody, first = Anonymous(), planted("machine")
    second = planted("machine")
    second.provenance["machine"]["machine_id"] = "ab" * 16
    hosts = [nobody.run(one).provenance["machine"]["hostname"] for one in (first, second, first)]
    assert hosts == ["host-1", "host-2", "host-1"]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("/usr/bin/gcc", "/usr/bin/gcc"),
        ("/usr/lib/x86_64-linux-gnu/libm.so.6", "/usr/lib/x86_64-linux-gnu/libm.so.6"),
        ("/usr/local/their/gcc", "path-1"),
        ("/usr/lib/../../home/x", "path-1"),
        ("set /sys/kernel/mm/x to 1", "set /sys/kernel/mm/x to 1"),
        ("/sys/fs/cgroup/user.slice/user-7.slice/cpu.max", "path-1"),
        ("3 cycles/instruction, 4 MB/s and n/a", "3 cycles/instruction, 4 MB/s and n/a"),
        ("see https://example.org/a/b", "see https://example.org/a/b"),
        ("-O2 -I/opt/x -L=/opt/x", "-O2 -Ipath-1 -L=path-1"),
        ("a /opt/x and /opt/y, '/opt/x'", "a path-1 and path-2, 'path-1'"),
        ("std::map<a, b>::operator/(c)", "std::map<a, b>::operator/(c)"),
        ("icl has no event for 'fp-flops'", "icl has no event for 'fp-flops'"),
    ],
)
def test_paths_of_users_are_taken_out_and_what_only_looks_like_one_stays(
    text: str, made: str
) -> None:
    run = Run("machine-1", "machine", {}, pd.DataFrame(), {"problems": [text]})
    assert Anonymous().run(run).provenance["problems"] == [made]


# --- copies as they are ---------------------------------------------------------------------------


def test_a_run_is_copied_as_it_is(tmp_path: Path) -> None:
    one = planted("machine")
    original = run_files.save(one)
    (file,) = export([one.id], tmp_path / "new" / "folder")
    assert file == tmp_path / "new" / "folder" / f"{one.id}.parquet"
    assert file.read_bytes() == original.read_bytes()
    elsewhere = export([str(file)], tmp_path / "again")
    assert run_files.load(elsewhere[0]).id == one.id


@pytest.mark.parametrize("anonymous", [False, True])
def test_what_is_there_is_not_replaced(tmp_path: Path, anonymous: bool) -> None:
    first, second = planted("machine"), planted("machine", "9aaaaaaaaa")
    run_files.save(first)
    run_files.save(second)
    (file,) = export([second.id], tmp_path, anonymous=anonymous)
    file.write_bytes(b"mine")
    with pytest.raises(UserError, match=f"there is {file} already: name another folder"):
        export([first.id, second.id], tmp_path, anonymous=anonymous)
    assert file.read_bytes() == b"mine"
    assert list(tmp_path.glob("*.parquet")) == [file], "nothing of the others was written"


def test_bad_input_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown run 'nothing'"):
        export(["nothing"], tmp_path)
    one = planted("machine")
    saved = run_files.save(one)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file is no folder"):
        export([one.id], tmp_path / "file")
    with pytest.raises(MeasurementError, match=r"cannot be copied to .*: Not a directory"):
        export([one.id], tmp_path / "file" / "below")
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(saved.read_bytes())
    with pytest.raises(UserError, match="two of these files are of one run"):
        export([one.id, str(copy)], tmp_path / "out")
    assert len(export([one.id, "7k2"], tmp_path / "out")) == 1
    saved.write_bytes(saved.read_bytes()[:-100])
    with pytest.raises(MeasurementError, match="cannot be read, it may be cut off"):
        export([one.id], tmp_path / "other")
