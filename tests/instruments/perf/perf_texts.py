"""Texts of ``perf script``, made from a table that is known, and the recorded ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.reference.folded_frames import folded_frames

RECORDED = Path(__file__).parents[2] / "data" / "perf_script"
NAMES = sorted(path.name for path in RECORDED.glob("*.txt"))

COMMS = [
    *("kv", "Web Content", "kworker/0:1-ev", "tokio-runtime-w", "C2 CompilerThre", "java"),
    *("swapper", "pool 3", "dd", "bash [x]", "a b/c:1", "7z", "ünï", ":1234", "x (y)"),
]
EVENTS = ["cycles:u", "cycles", "cpu-clock:pppH", "cpu/event=0x3c/", "instructions:uk", "r01c2"]
TRACED = {
    "sched:sched_switch": "prev_comm=a prev_pid=1 prev_state=S ==> next_comm=b next_pid=12 1.5: x",
    "sched:sched_wakeup": "comm=x pid=1 prio=120 target_cpu=000",
    "syscalls:sys_enter_read": "fd: 0x00000003, buf: 0x7ffd (count)",
}
SYMBOLS = [
    *("main", "[unknown]", "native_safe_halt", "net/http.(*Client).Do", "operator<<(int)"),
    *("foo::bar(int, char (*)[3])", "(anonymous namespace)::work(int)", "(swapper)", "a->b;c"),
    *("std::function<void (int, int)>::operator()(int, int) const", "StubRoutines (1)"),
    "core::ops::FnOnce::call_once::h0123456789abcdef",
    "_$LT$std..fs..Dir$u20$as$u20$X$GT$::next::hc14f1750ca79129b",
    *("_ZN4core3fmt5Write17h018382932c6ab3a0E", "Lorg/a/Box;::get(Lorg/a/Key;)V"),
    *("_$X$u20$a$Y::h0123456789abcdef", "f.h0123456789abcdef", "RegExp:[&<>\"']", "ptr->"),
]
OBJECTS = [
    *("/usr/lib/libc.so.6", "[kernel.kallsyms]", "[unknown]", "[nf_tables]", "inlined"),
    *("/tmp/perf-123.map", "[kernel.kallsyms].init.text", "[vdso]", "//anon"),
]
STRANGE_OBJECTS = ["/opt/my lib/x.so", "/memfd:jit (deleted)", "/tmp/a(b)"]


@dataclass(frozen=True)
class Text:
    """A text, the table that it was made from, and what it should become when folded."""

    data: bytes
    rows: list[dict[str, Any]]
    records: int


@st.composite
def texts(draw: st.DrawFn, *, plain: bool = False) -> Text:
    """``plain``: as inferno-collapse-perf can read it, one event with a time and whole frames."""

    def pick(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    chain, with_tid = pick(True, False), pick(True, False)
    with_cpu, digits = pick(True, False), pick(6, 9)
    with_period, with_offset = pick(True, False), pick(True, False)
    with_time = plain or pick(True, True, False)
    with_object = plain or pick(True, True, True, False)
    sources = not plain and with_object and pick(True, False)
    end = pick("\n", "\n", "\r\n")
    events = [pick(*EVENTS)] if plain else draw(st.lists(st.sampled_from(EVENTS), min_size=1))
    traced = [] if plain or not chain else draw(st.lists(st.sampled_from(sorted(TRACED))))
    # Without a time, a number at a name's end cannot be told from a thread's before a period.
    comms = [name for name in COMMS if with_time or name != "pool 3"]
    objects = OBJECTS if plain else OBJECTS + STRANGE_OBJECTS
    # Without an object, a name that ends in brackets cannot be told from one with an object.
    symbols = [name for name in SYMBOLS if with_object or not name.endswith(")")]
    if plain:  # inferno-collapse-perf cuts an operator's name
        symbols = [name for name in symbols if "operator" not in name]
    lines, rows, records = [], [], 0
    if draw(st.booleans()):
        lines += ["# ========", "# hostname : box", "# cmdline : perf record ./x", "#"]
    for _ in range(draw(st.integers(1, 8))):
        event = pick(*events, *traced)
        row: dict[str, Any] = {
            "time_ns": draw(st.integers(0, 10**7)) * 10 ** (9 - digits) if with_time else -1,
            "cpu": draw(st.integers(0, 999)) if with_cpu else -1,
            "pid": draw(st.integers(0, 99999)) if with_tid else -1,
            "tid": draw(st.integers(0, 99999)),
            "comm": pick(*comms),
            "event": event,
            "period": draw(st.integers(0, 2**62)) if with_period else -1,
        }
        ids = f"{row['pid']:>7}/{row['tid']:<7}" if with_tid else f"{row['tid']:>7}"
        line = f"{row['comm'] if chain else row['comm'].rjust(16)} {ids} "
        line += f"[{row['cpu']:03d}] " if with_cpu else ""
        if with_time:
            line += (
                f"{row['time_ns'] // 10**9:5d}.{str(row['time_ns'] % 10**9).zfill(9)[:digits]}: "
            )
        line += f"{row['period']:>10} " if with_period else ""
        # inferno-collapse-perf overlooks the period before a name that perf padded.
        line += (event if plain else event.rjust(12)) + ": " + TRACED.get(event, "")
        frames: list[tuple[int, str, int, str]] = []
        for _ in range(draw(st.integers(0, 4)) if chain else 1):
            symbol = pick(*symbols)
            offset = draw(st.integers(0, 2**40)) if with_offset and symbol != "[unknown]" else -1
            ip = draw(st.integers(0, 2**64 - 1))
            frames.append((ip, symbol, offset, pick(*objects) if with_object else "[unknown]"))
        written = []
        for ip, symbol, offset, obj in frames:
            place = f"{symbol}+{offset:#x}" if offset >= 0 else symbol
            written.append(f"{ip:16x} {place}" + (f" ({obj})" if with_object else ""))
            if sources and draw(st.booleans()):
                written[-1] += f"{end}  file.c:{draw(st.integers(0, 999))}"
        if chain:
            lines += [line, *(f"\t{frame}" for frame in written), ""]
        else:
            lines.append(f"{line} {written[0]}")
        if not plain and draw(st.booleans()):
            lines.append(f"            kv  {ids} 1.5: PERF_RECORD_COMM: kv:1/1")
            records += 1
        java = row["comm"].startswith("java")
        named = [f for f in frames if f[3] != "inlined"]
        leaf = frames[0] if frames else (0, "[unknown]", -1, "[unknown]")
        obj = named[0][3] if named and leaf[3] == "inlined" else leaf[3]
        row |= {"ip": leaf[0], "symbol": leaf[1], "offset": leaf[2], "object": obj}
        outermost_first = [
            part for f in reversed(frames) for part in folded_frames(f[1], f[3], java)
        ]
        rows.append(row | {"stack": ";".join(outermost_first)})
    return Text("".join(f"{line}{end}" for line in lines).encode(), rows, records)
