"""perf_script.c against its Python reference; tests/fuzz checks every access to memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perflib import kernels
from tests.instruments.perf.perf_texts import NAMES, RECORDED, Text, scrambled, texts
from tests.reference.perf_script import CUT, NEITHER, ORPHAN, TOO_LONG, Parsed, perf_script

KINDS = ("comm", "event", "symbol", "object", "stack")
NUMBERS = ("time_ns", "cpu", "pid", "tid", "period", "ip", "offset")
REASONS = (NEITHER, ORPHAN, CUT, TOO_LONG)
KERNEL = "perf_script"


def parse(kernel: kernels.Kernel, data: bytes, piece: int = 10**9, room: int = 50) -> Parsed:
    """The kernel's answer in the reference's form; the text comes in pieces."""
    lib, ffi = kernel.lib, kernel.ffi
    state = lib.perf_script_open()
    samples, count = ffi.new("perf_script_sample[]", room), ffi.new("int64_t *")
    found: list[Any] = []
    at, given_ = 0, 0
    last = False
    while not last:
        given_ = min(len(data), given_ + piece)
        last = given_ == len(data)
        while True:
            text = data[at:given_]
            used = lib.perf_script_feed(state, text, len(text), last, samples, room, count)
            assert used >= 0
            at += used
            found += [
                {name: getattr(samples[i], name) for name in (*NUMBERS, *KINDS)}
                for i in range(count[0])
            ]
            if count[0] <= room - 3:
                break
    assert at == len(data)
    strings = {kind: strings_of(kernel, state, i) for i, kind in enumerate(KINDS)}
    for sample in found:
        sample |= {kind: strings[kind][sample[kind]] for kind in KINDS}
    report = lib.perf_script_reported(state)
    header = bytes(ffi.buffer(report.header, report.header_bytes)) if report.header else b""
    unread = [
        (u.line, bytes(ffi.buffer(u.text, u.bytes)).decode(errors="replace"), REASONS[u.reason])
        for u in report.unread[0 : report.kept]
    ]
    assert report.kept == min(report.unread_count, 100)
    parsed = Parsed(found, unread, header.decode("latin-1").split("\n")[:-1], report.lines)
    parsed.records = report.records
    lib.perf_script_close(state)
    return parsed


def strings_of(kernel: kernels.Kernel, state: Any, kind: int) -> list[str]:
    ends = kernel.ffi.new("int64_t[]", 3)
    found: list[str] = []
    room = 40
    while len(found) < kernel.lib.perf_script_count(state, kind):
        buffer = kernel.ffi.new("char[]", room)
        got = kernel.lib.perf_script_strings(state, kind, len(found), buffer, room, ends, 3)
        room *= 1 if got else 2
        begins = [0, *ends[0:got]]
        raw = bytes(kernel.ffi.buffer(buffer, begins[-1]))
        found += [raw[begins[i] : begins[i + 1]].decode(errors="replace") for i in range(got)]
    return found


def same(ours: Parsed, reference: Parsed) -> None:
    reference.unread = reference.unread[:100]
    assert ours == reference


@pytest.mark.parametrize("name", NAMES)
def test_recorded_texts(kernel: kernels.Kernel, name: str) -> None:
    data = (RECORDED / name).read_bytes()
    expected = perf_script(data)
    assert expected.samples
    same(parse(kernel, data), expected)


@given(text=texts())
def test_made_texts(kernel: kernels.Kernel, text: Text) -> None:
    expected = perf_script(text.data)
    assert expected.samples == text.rows
    assert expected.unread == []
    assert expected.records == text.records
    same(parse(kernel, text.data), expected)


@given(data=scrambled(), piece=st.integers(1, 400), room=st.integers(3, 9))
@example(data=b"", piece=1, room=3)
@example(data=b"\n\n \n#", piece=1, room=3)
@example(data=b"a 1 1.5: c: 12 ((x)", piece=2, room=3)
@example(data=b"a 1 1.5: c: 12 (x) y)\n", piece=2, room=3)
def test_scrambled_texts(kernel: kernels.Kernel, data: bytes, piece: int, room: int) -> None:
    same(parse(kernel, data, piece, room), perf_script(data))


@given(text=texts(), data=st.data())
def test_a_text_that_ends_early_has_no_sample_that_the_whole_one_has_not(
    kernel: kernels.Kernel, text: Text, data: st.DataObject
) -> None:
    whole = text.data
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    found = parse(kernel, cut).samples
    same(parse(kernel, cut), perf_script(cut))
    assert found[:-1] == text.rows[: max(0, len(found) - 1)]
    if found:  # of the last one, callers may be missing
        last = text.rows[len(found) - 1]
        head = ("time_ns", "cpu", "pid", "tid", "comm", "event", "period")
        assert [found[-1][name] for name in head] == [last[name] for name in head]
        assert last["stack"].endswith(found[-1]["stack"])


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("begin", [b"#", b"\t", b"x"])
def test_a_line_that_is_too_long(kernel: kernels.Kernel, begin: bytes, end: bytes) -> None:
    sample = b"a 1 1.5: c: \n\t12 f (/x)\n"
    data = sample + begin + b"y" * (1 << 20) + end
    for more in (b"", b"\n\t13 g (/x)\n"):
        ours = parse(kernel, data + more, 1 << 20)
        same(ours, perf_script(data + more))
        assert [(line, reason) for line, _, reason in ours.unread][:1] == [(3, TOO_LONG)]


def test_many_different_strings(kernel: kernels.Kernel) -> None:
    lines = []
    for i in range(3000):
        lines += [f"comm{i} {i} 1.{i:06d}: e{i}: ", f"\t{i:x} f{i} (/o{i})", f"\t{i:x} g (/x)", ""]
    ours = parse(kernel, "\n".join(lines).encode(), 1000)
    assert [s["symbol"] for s in ours.samples] == [f"f{i}" for i in range(3000)]
    assert [s["stack"] for s in ours.samples] == [f"g;f{i}" for i in range(3000)]
    assert [s["object"] for s in ours.samples] == [f"/o{i}" for i in range(3000)]
    assert [s["event"] for s in ours.samples] == [f"e{i}" for i in range(3000)]


@pytest.mark.parametrize("end", [b" f+0x", b" (", b")"])
def test_a_long_line_of_numbers_is_read_once(kernel: kernels.Kernel, end: bytes) -> None:
    """Each number might be a thread's, and what follows it the rest of a sample's first line."""
    line = b"1 " * ((1 << 19) - 10) + end
    ours = parse(kernel, line + b"\n", 1 << 20)
    assert [number for number, _, _ in ours.unread] == [1]
    assert not ours.samples


def test_a_long_line_of_inlined_functions(kernel: kernels.Kernel) -> None:
    """As many as fit; each is called after its file, whose name is no longer than a file's is."""
    n, path = 40_000, b"/" + b"x" * 100_000
    line = b"\t12 " + b"[unknown]->" * (n - 1) + b"[unknown] (" + path + b")\n"
    (sample,) = parse(kernel, b"a 1 1.5: c: \n" + line, 1 << 20).samples
    name = f"[{'x' * 255}]"
    assert (sample["stack"] == name + f";{name}_[i]" * (n - 1)) is True  # pytest would show both
