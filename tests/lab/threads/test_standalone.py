"""The parts of a page that stands alone: what it holds, how large it is, and that it is closed."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from perflib.instruments.threads.formats import Lock
from perflib.instruments.threads.intervals import states_in_bins
from perflib.instruments.threads.recording import Recording
from perflib.lab.threads import page
from perflib.lab.threads.packing import packed
from perflib.lab.threads.standalone import write_html
from perflib.model.errors import UserError
from tests.instruments.threads.made import made_recording, recording_of


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def columns(parts: dict[str, str], name: str) -> dict[str, np.ndarray]:
    """As the page's script reads them."""
    described = json.loads(unpacked(parts["head"]))["planes"][name]
    data, at, found = unpacked(parts[name]), 0, {}
    for column, wide in described["columns"].items():
        numbers = np.zeros(described["count"], dtype=np.int64)
        for plane in range(wide):
            numbers += np.frombuffer(data, np.uint8, described["count"], at).astype(np.int64) << (
                8 * plane
            )
            at += described["count"]
        found[column] = numbers
    assert at == len(data)
    return found


def rebuilt(parts: dict[str, str]) -> tuple[np.ndarray, ...]:
    """Row, begin and end (ns since the recording began) of each interval that the page has."""
    counts = json.loads(unpacked(parts["head"]))["counts"]
    found = columns(parts, "intervals")
    rows = np.repeat(np.arange(len(counts)), counts)
    ends = found["gap"] + found["length"]
    ends = np.concatenate([np.cumsum(ends[rows == row]) for row in range(len(counts))])
    return rows, ends - found["length"], ends


def test_every_interval_of_a_small_recording_is_in_the_page(tmp_path: Path) -> None:
    recording = made_recording(tmp_path, 5, 0.5)
    parts = packed(recording)
    assert json.loads(unpacked(parts["head"]))["least_ns"] == 0
    rows, starts, ends = rebuilt(parts)
    assert np.array_equal(rows, np.repeat(np.arange(5), np.diff(recording.first)))
    assert np.array_equal(starts, recording.intervals["start_ns"] - recording.start_ns)
    assert np.array_equal(ends, recording.intervals["end_ns"] - recording.start_ns)
    found = columns(parts, "intervals")
    assert np.array_equal(found["state"], recording.intervals["state"])
    for name in ("lock", "other", "stack", "cpu"):
        assert np.array_equal(found[name] - 1, recording.intervals[name])
    assert columns(parts, "samples")["weight"].sum() == recording.samples["weight_ns"].sum()


def test_what_does_not_fit_is_the_shortest(tmp_path: Path) -> None:
    recording = made_recording(tmp_path, 16, 10.0, per_second=400)
    whole = sum(len(base64.b64decode(part)) for part in packed(recording).values())
    least = whole - 60_000
    parts = packed(recording, least)
    assert sum(len(base64.b64decode(part)) for part in parts.values()) <= least
    head = json.loads(unpacked(parts["head"]))
    _, starts, ends = rebuilt(parts)
    assert head["least_ns"] > 0
    length = recording.intervals["end_ns"] - recording.intervals["start_ns"]
    assert sorted(ends - starts) == sorted(length[length >= head["least_ns"]])
    bins = np.frombuffer(unpacked(parts["bins"]), np.uint8).reshape(16, head["bins"], 6)
    state = states_in_bins(recording, 1)[:, 0, :]
    shares = bins.mean(axis=1) / 255 * (recording.end_ns - recording.start_ns)
    assert shares == pytest.approx(state[:, list(page.DRAWN)], rel=0.02, abs=2e7)


def test_the_page_asks_nobody_and_runs_its_own_script_only(tmp_path: Path) -> None:
    recording = made_recording(tmp_path / "recording", 3, 0.1)
    write_html(recording, tmp_path / "new" / "page.html", "A <b>job</b> & more")
    text = (tmp_path / "new" / "page.html").read_text()
    assert "A &lt;b&gt;job&lt;/b&gt; &amp; more" in text
    assert "default-src 'none'" in html.unescape(text)
    assert not re.search(r"(src|href)\s*=", text.replace("default-src", ""))
    assert "http" not in re.sub("http-equiv|http://www.w3.org/2000/svg", "", text)
    assert "innerHTML" not in text


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    recording = made_recording(tmp_path / "recording", 2, 0.1)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_html(recording, tmp_path / "file" / "page.html")


def test_odd_names_cannot_leave_their_place(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>\x1b\udcff"
    recording: Recording = recording_of(
        tmp_path / "recording",
        [[(0, 9000, 2, 0, -1, 0, -1, 0)]],
        names=[evil],
        locks=(Lock(evil, "mutex", 1, 1),),
        stacks=(evil,),
        meta={"remarks": [evil]},
    )
    write_html(recording, tmp_path / "page.html", evil)
    text = (tmp_path / "page.html").read_text()
    assert "alert(1)</script>" not in text
    assert r"\x1b\udcff" in text
