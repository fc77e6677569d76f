"""perfscript.read: the table, what it says of what it could not read, and its errors."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from perflib.instruments.perf.script import StackReader, read
from perflib.model.errors import UserError
from tests.instruments.perf.perf_texts import NAMES, RECORDED
from tests.instruments.profile.tables import TYPES, sample

SAMPLE = (
    "kv 12/13 [001] 1.000002003: 25 cycles:u: \n\t401136 f+0x4 (/bin/kv)\n\t2 main (/bin/kv)\n\n"
)


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "perf.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_the_table_and_its_types(tmp_path: Path) -> None:
    samples = read(written(tmp_path, SAMPLE)).samples
    row = sample("main;f", time_ns=1_000_002_003, cpu=1, pid=12, tid=13, comm="kv", period=25)
    row |= {"event": "cycles:u", "ip": 0x401136, "offset": 4, "object": "/bin/kv"}
    assert samples.to_dict("records") == [row]
    assert {name: str(kind) for name, kind in samples.dtypes.items()} == TYPES


@pytest.mark.parametrize("begin", ["#", "\t", "x"])
def test_a_line_that_is_too_long(tmp_path: Path, begin: str) -> None:
    text = SAMPLE + begin + "y" * (1 << 20) + "\n\t13 g (/x)\n"
    first = read(written(tmp_path, text)).unread[0]
    assert (first.line, first.reason) == (5, "longer than 1 MiB")


@pytest.mark.parametrize("end", [" f+0x", " (", ")"])
def test_a_long_line_of_numbers_is_read_once(tmp_path: Path, end: str) -> None:
    """Each number might be a thread's, and what follows it the rest of a sample's first line."""
    text = SAMPLE + "1 " * ((1 << 19) - 10) + end + "\n"
    profile = read(written(tmp_path, text))
    assert ([entry.line for entry in profile.unread], len(profile.samples)) == ([5], 1)


def test_a_long_line_of_inlined_functions(tmp_path: Path) -> None:
    """As many as fit; each is called after its file, whose name is no longer than a file's is."""
    n, path = 40_000, "/" + "x" * 100_000
    frames = "[unknown]->" * (n - 1) + f"[unknown] ({path})"
    samples = read(written(tmp_path, f"a 1 1.5: c: \n\t12 {frames}\n")).samples
    name = f"[{'x' * 255}]"
    expected = name + f";{name}_[i]" * (n - 1)
    assert (samples["stack"].iloc[0] == expected) is True  # pytest would show both


def test_a_stack_longer_than_the_buffer_for_strings(tmp_path: Path) -> None:
    frames = "".join(f"\t1 f{i:04d}{'x' * 1000} (/x)\n" for i in range(1200))
    samples = read(written(tmp_path, f"kv 1 1.5: c: \n{frames}\n")).samples
    stack = samples["stack"].iloc[0]
    assert len(stack) == 1200 * 1006 - 1
    assert stack.startswith("f1199x")


def test_bytes_that_are_no_utf8_are_one_category(tmp_path: Path) -> None:
    lines = [b"kv\xff 1 1.5: c: 12 f (/x)\n", b"kv\xfe 1 1.6: c: 12 f (/x)\n"]
    comm = read(written(tmp_path, b"".join(lines))).samples["comm"]
    assert list(comm) == ["kv\ufffd"] * 2
    assert len(comm.cat.categories) == 1


def test_the_header(tmp_path: Path) -> None:
    header = read(RECORDED / "two_events.txt").header
    assert header["perf version"].startswith("6.1")
    assert header["cmdline"].startswith("/usr/bin/perf record")
    assert [line.split(",")[0] for line in header["event"].splitlines()] == [
        "name = cpu-clock:u",
        "name = task-clock",
    ]
    assert read(written(tmp_path, SAMPLE)).header == {}


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    profile = read(RECORDED / "cut.txt")
    assert profile.records == 2
    assert [(entry.line, entry.reason.split()[0]) for entry in profile.unread] == [
        (1, "a"), (5, "cut:"), (8, "cut:"), (9, "a"), (11, "neither"), (17, "neither"),
    ]  # fmt: skip
    assert profile.unread[4].text == "prog 12 [00"
    many = read(written(tmp_path, SAMPLE + "nonsense\n" * 5000))
    assert many.unread_count == 5000
    assert [entry.line for entry in many.unread] == list(range(5, 105))


@pytest.mark.parametrize(
    ("frames", "symbol", "obj", "stack"),
    [
        (["1 f (inlined)", "1 g+0x3 (/x)"], "f", "/x", "g;f"),
        (["1 f (inlined)", "1 g (inlined)", "1 h ([k])", "1 i (/x)"], "f", "[k]", "i;h;g;f"),
        (["1 f (/a)", "1 g (inlined)", "1 h (/b)"], "f", "/a", "h;g;f"),
        (["1 [unknown] (/lib/a b (deleted))"], "[unknown]", "/lib/a b (deleted)",
         "[a b (deleted)]"),
        (["1 f+0x1 (/x (deleted))"], "f", "/x (deleted)", "f"),
        (["1 f", "2 g+0x12"], "f", "[unknown]", "g;f"),
        (["1 (/lib/a)"], "[unknown]", "/lib/a", "[a]"),
        (["1"], "[unknown]", "[unknown]", "[unknown]"),
        ([], "[unknown]", "[unknown]", ""),
        (["1 (idle) (/x)", "2 g (/x)"], "(idle)", "/x", "g"),
    ],
)  # fmt: skip
def test_leaf_and_stack(
    tmp_path: Path, frames: list[str], symbol: str, obj: str, stack: str
) -> None:
    text = "kv 1 1.5: c: \n" + "".join(f"\t{frame}\n" for frame in frames) + "\n"
    row = read(written(tmp_path, text)).samples.iloc[0]
    assert (row["symbol"], row["object"], row["stack"]) == (symbol, obj, stack)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kv 12 U     1.5: c: ", {"tid": 12, "time_ns": 1_500_000_000, "event": "c"}),
        ("pool 3 5.0 x 12/-1 [002] 1.5: c: ", {"comm": "pool 3 5.0 x", "pid": 12, "tid": -1}),
        ("kv 12 1.5: 77 7f (/x)", {"event": "", "period": 77, "ip": 0x7F}),
        ("kv 12 1.5: 77 f (/x)", {"event": "", "period": -1, "ip": 0x77, "symbol": "f"}),
        ("12 1.5: c: ", {"comm": "", "tid": 12, "event": "c"}),
        ("kv 1.5: c: ", {"comm": "kv", "tid": -1, "event": "c"}),
        ("1.5:      7 c: ", {"comm": "", "tid": -1, "period": 7}),
        ("kv [003] c: ", {"comm": "kv", "tid": -1, "cpu": 3}),
        ("kv     250000 c: ", {"comm": "kv", "tid": -1, "period": 250000}),
        ("#kv 12 1.5: c: ", {"comm": "#kv", "tid": 12}),
        ("kv 12 1.5: ", {"event": "", "period": -1, "time_ns": 1_500_000_000}),
        ("kv 12 1.5: 77", {"event": "", "period": 77}),
        ("kv 12 [003] c: ", {"event": "c", "time_ns": -1, "cpu": 3}),
        ("kv 12 7f f (/x)", {"event": "", "ip": 0x7F, "symbol": "f", "time_ns": -1}),
        ("kv 12 1.5: sched:s: add=1 (x)", {"event": "sched:s", "symbol": "[unknown]", "ip": 0}),
        ("kv 12 1.5: c: 7f12", {"ip": 0x7F12, "symbol": "[unknown]", "stack": ""}),
        ("kv 12 1.5: 9223372036854775807 c: ", {"period": 2**63 - 1}),
        ("kv 12 1.5: c: 12 f+0xffffffffffffffff (/x)", {"symbol": "f", "offset": -1}),
    ],
)
def test_first_lines(tmp_path: Path, line: str, expected: dict[str, object]) -> None:
    row = read(written(tmp_path, line + "\n")).samples.iloc[0]
    assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize(
    "line",
    [
        "kv 12 1.5: c",
        "kv 12 9223372036.5: c: ",
        "kv 2147483648 1.5: c: ",
        "kv 12 1.1234567890: c: ",
        "kv 12",
        "took 12 seconds: fine",
        "\t7f12 main (/x)",
    ],
)
def test_lines_that_are_no_sample(tmp_path: Path, line: str) -> None:
    with pytest.raises(UserError, match="no sample in its 1 lines; line 1 is "):
        read(written(tmp_path, line + "\n"))


def test_a_first_line_that_lacks_what_the_others_have_is_cut(tmp_path: Path) -> None:
    text = SAMPLE + "kv 12/13 [001] cycles:u: \n\n" + "kv 12/13 [001] 1.000002003: 25\n"
    profile = read(written(tmp_path, text))
    assert len(profile.samples) == 1
    assert [entry.reason[:4] for entry in profile.unread] == ["cut:"] * 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty.*perf script -i perf.data"),
        (b"# a : b\n\n", "no sample in its 2 lines. Such a text is made with: perf script"),
        (b"PERFILE2" + bytes(100), "perf's own data, not its text: perf script -i"),
        (gzip.compress(SAMPLE.encode(), mtime=0), r"compressed \(gzip\): gunzip -c"),
        (b"\x28\xb5\x2f\xfd rest", r"compressed \(zstd\)"),
        (bytes(range(256)) * 100, "no sample in its 101 lines; line 1 is neither"),
    ],
)
def test_what_is_no_such_text(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(UserError, match=words):
        read(written(tmp_path, content))


def test_stacks_as_they_come_are_those_of_the_table() -> None:
    for name in NAMES:
        samples = read(RECORDED / name).samples
        with (RECORDED / name).open("rb", buffering=0) as file:
            reader = StackReader(file)
            parts = [(t.tolist(), i.tolist(), [reader.texts[n] for n in s]) for t, i, s in reader]
        assert [time_ns for times, _, _ in parts for time_ns in times] == list(samples["time_ns"])
        assert [tid for _, tids, _ in parts for tid in tids] == list(samples["tid"])
        assert [text for _, _, texts in parts for text in texts] == list(samples["stack"])
