"""Folded stacks against inferno's, speedscope's format, Parquet."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from perflib.instruments.perf.script import read
from perflib.instruments.profile.export.files import written
from perflib.instruments.profile.export.flame import folded
from perflib.instruments.profile.export.parquet import write_parquet
from perflib.instruments.profile.export.speedscope_file import speedscope
from perflib.model.errors import UserError
from tests.instruments.perf.perf_texts import RECORDED

# inferno cuts "operator()" short, and leaves "operator<<" its arguments.
CALLED = re.compile(r"operator(?:\(\)|<<(?:\([^)]*\))?)?")
FOLDED = sorted(path.stem for path in RECORDED.glob("*.folded"))


def samples_of(folder: Path, text: str | bytes) -> pd.DataFrame:
    path = folder / "perf.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(path).samples


@pytest.mark.parametrize("name", FOLDED)
def test_recorded_texts_fold_as_inferno_folds_them(name: str) -> None:
    expected = (RECORDED / f"{name}.folded").read_text().splitlines()
    assert expected
    found = folded(read(RECORDED / f"{name}.txt").samples)
    assert [CALLED.sub("operator", line) for line in found] == [
        CALLED.sub("operator", line) for line in expected
    ]


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (["g", "(anonymous namespace)::f()"], "k;g 1"),
        (["h", "(anonymous namespace)::p->q", "g"], "k;h;g 1"),
        (["h", "a->(anonymous namespace)::b"], "k;h;a;(anonymous namespace)::b_[i] 1"),
        (["N::(anonymous namespace)::f(int)"], "k;N::(anonymous namespace)::f 1"),
    ],
)
def test_anonymous_namespaces(tmp_path: Path, frames: list[str], expected: str) -> None:
    """stackcollapse-perf leaves such frames out; the table has them."""
    text = "k 1 1.5: c: \n" + "".join(f"\t1 {frame} (/x)\n" for frame in reversed(frames)) + "\n"
    samples = samples_of(tmp_path, text)
    assert folded(samples) == [expected]
    assert "(anonymous namespace)" in samples["stack"].iloc[0]


def test_tracepoints_fold_although_inferno_cannot_read_them() -> None:
    samples = read(RECORDED / "tracepoints.txt").samples
    lines = folded(samples)
    first = samples[samples["event"] == samples["event"].iloc[0]]
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == len(first)
    assert all(line.count(";") > 5 for line in lines)


# --- speedscope ----------------------------------------------------------------------------------


def check_speedscope(made: dict[str, Any]) -> None:
    """What https://www.speedscope.app/file-format-schema.json requires of sampled profiles."""
    assert made["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = made["shared"]["frames"]
    assert all(isinstance(frame["name"], str) for frame in frames)
    assert made["profiles"]
    assert 0 <= made["activeProfileIndex"] < len(made["profiles"])
    for profile in made["profiles"]:
        assert profile["type"] == "sampled"
        assert isinstance(profile["name"], str)
        assert profile["unit"] in {"none", "nanoseconds"}
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
        assert all(0 <= at < len(frames) for sample in profile["samples"] for at in sample)
    json.dumps(made, allow_nan=False)


def test_speedscope_says_what_folded_says(tmp_path: Path) -> None:
    text = (
        "kv 1/2 1.1: 10 cpu-clock: 1 f (/x)\nkv 1/3 1.2: 20 cpu-clock: 1 g (/x)\n"
        "kv 1/3 1.3: 30 cpu-clock: 1 f (/x)\nkv 1/3 1.4: 1 faults: 1 f (/x)\n"
    )
    samples = samples_of(tmp_path, text)
    made = speedscope(samples, "kv", "cpu-clock")
    check_speedscope(made)
    names = [frame["name"] for frame in made["shared"]["frames"]]
    seen = {
        profile["name"]: [
            (names[s[-1]], w) for s, w in zip(profile["samples"], profile["weights"], strict=True)
        ]
        for profile in made["profiles"]
    }
    assert seen == {"kv 1/3": [("g", 20), ("f", 30)], "kv 1/2": [("f", 10)]}
    assert [profile["name"] for profile in made["profiles"]] == ["kv 1/3", "kv 1/2"]
    assert {profile["unit"] for profile in made["profiles"]} == {"nanoseconds"}
    other = speedscope(samples, "kv", "faults")["profiles"]
    assert [(profile["unit"], profile["weights"]) for profile in other] == [("none", [1])]
    both = [profile["name"] for profile in speedscope(samples, "kv")["profiles"]]
    assert both == ["cpu-clock: kv 1/3", "cpu-clock: kv 1/2", "faults: kv 1/3"]


# --- files ---------------------------------------------------------------------------------------


def test_parquet_reads_back(tmp_path: Path) -> None:
    profile = read(RECORDED / "two_events.txt")
    path = tmp_path / "it's.parquet"
    write_parquet(profile, path)
    quoted = str(path).replace("'", "''")
    with duckdb.connect() as connection:
        back = connection.execute(f"SELECT * FROM '{quoted}'").df()
        ((header,),) = connection.execute(
            f"SELECT value FROM parquet_kv_metadata('{quoted}') WHERE key = 'perf'"
        ).fetchall()
    assert json.loads(header) == profile.header
    strings = profile.samples.select_dtypes("category").columns
    texts_ = dict.fromkeys(strings, object)
    pd.testing.assert_frame_equal(
        back.astype(texts_), profile.samples.astype(texts_), check_dtype=True
    )


def write_text(text: str, path: Path) -> None:
    with written(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def test_what_lay_there_stays_where_writing_fails(tmp_path: Path) -> None:
    profile = read(RECORDED / "cut.txt")
    folder = tmp_path / "out"
    folder.mkdir()
    writers: list[Callable[[Path], None]] = [
        lambda path: write_text("x", path),
        lambda path: write_parquet(profile, path),
    ]
    for write in writers:
        with pytest.raises(UserError, match="cannot be written: it is no ordinary file"):
            write(folder)
        with pytest.raises(UserError, match="cannot be written"):
            write(tmp_path / "no" / "such")
    out = folder / "a.txt"
    write_text("first", out)
    (folder / "link").symlink_to(out)
    with pytest.raises(UnicodeEncodeError):
        write_text("\ud800", out)
    assert out.read_text() == "first"
    write_text("second", folder / "link")
    assert out.read_text() == "second"
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "link"]
