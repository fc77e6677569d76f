"""Whatever fields "perf script -F" was asked for, none is taken for another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perflib.instruments.perf.script import read

# Of C++, Rust, Go, Julia, Java, Python, the kernel, and names that look like numbers.
SYMBOLS = {
    "std::unique_ptr<Foo>::operator->() const": "std::unique_ptr<Foo>::operator->",
    "Foo::operator->*(int Foo::*)": "Foo::operator->*",
    "run()::{lambda(int)#1}::operator()(int) const": "run()::{lambda(int)#1}::operator()",
    "run() const::{lambda()#1}::operator()() const": "run() const::{lambda()#1}::operator()",
    "run()": "run",
    "decltype(auto) ns::apply<f(int)>(int, f&)": "decltype(auto) ns::apply<f(int)>",
    "decltype ((p.begin)()) ns::begin<Q>(Q&)": "decltype ((p.begin)()) ns::begin<Q>",
    "void (*handler(int))(char)": "void (*handler(int))",
    "operator<< <int>(std::ostream&, int)": "operator<< <int>",
    "operator|(A, B)": "operator|",
    "<fn(i32) -> i32 as FnOnce<(i32,)>>::call_once": None,
    "<alloc::boxed::Box<dyn Fn() -> ()> as Fn<()>>::call": None,
    "main.(*T).Method": None,
    "julia_sum_1234": None,
    "Lorg/a/Box;::get(Lorg/a/Key;)V": "Lorg/a/Box:::get",
    "py::work:/srv/a.py": None,
    "native_safe_halt": None,
    "(dyn core::ops::Fn)::call": "(dyn core::ops::Fn)::call",
    "add": None, "f1": None, "deadbeef": None, "_start": None,
}  # fmt: skip
BEFORE = {
    "flags": "   tr end  hw int (x)      ",
    "addr": "{:>16x}",
    "data_src": "         5080021 |OP LOAD|LVL Remote RAM (1 hop)|SNP None|LCK No|BLK  N/A ",
    "weight": "{:>16}",
    "cgroup": " /user.slice/a",
}
BEHIND = {
    "to": " =>           401140 f+0x0 (/x/prog)",
    "brstack": "  0x401136/0x401140/P/-/-/0  0x401236/0x401240/M/-/-/3 ",
    "insn": " ilen: 3 insn: 48 89 e5",
    "disasm": "\t\tadd %eax, (%rsp)",
    "phys_addr": "        12345000",
    "page_size": " 4K N/A",
    "ipc": "\t IPC: 1.00 (3/3) ",
}
TIMES_NS = (10_000_001_000, 10_100_001_000)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]], list[str]]:
    """A text, its samples, and their stacks."""
    fields = "vm comm tid cpu misc tod event chain with_sym_of_data"
    has = {name: draw(st.booleans()) for name in fields.split()}
    has["comm"] |= has["with_sym_of_data"]
    before = [name for name in BEFORE if draw(st.booleans())]
    behind = [name for name in BEHIND if draw(st.booleans())]
    if has["chain"]:  # then a physical address would stand in a line of its own
        behind = [name for name in behind if name in ("to", "insn", "disasm", "brstack")][:1]
    comm = draw(st.sampled_from(["prog", "Web Content", "#worker", "a.out:x"]))
    lines, rows, stacks = [], [], []
    for time_ns in TIMES_NS:
        symbols = draw(st.lists(st.sampled_from(sorted(SYMBOLS)), min_size=1, max_size=3))
        symbols = symbols if has["chain"] else symbols[:1]
        ip = draw(st.integers(0x40000, 2**48))
        line = "VM:    5 VCPU:001 " if has["vm"] else ""
        line += f"{comm if has['chain'] else comm.rjust(16)} " if has["comm"] else ""
        line += f"{100:>7} " if has["tid"] else ""
        line += "[001] " if has["cpu"] else ""
        line += "U      " if has["misc"] else ""
        line += "2026-11-27 04:51:00.123456 " if has["tod"] else ""
        line += f"{time_ns // 1e9:5.0f}.{time_ns // 1000 % 10**6:06}: {250000:>10} "
        line += "cpu/mem-loads,ldlat=30/P: " if has["event"] else ""
        for name in before:
            value = draw(st.integers(0, 2**47)) if name == "addr" else 42
            line += BEFORE[name].format(value)
            if name == "addr" and has["with_sym_of_data"]:
                line += " buffer+0x8 (/lib/data.so)"
        frames = [f"{ip:>16x} {symbol}+0x4 (/opt/my p/prog)" for symbol in symbols]
        tail = "".join(BEHIND[name] for name in behind)
        if has["chain"]:
            lines += [line, *(f"\t{frame}" for frame in frames), *[tail] * bool(tail), ""]
        else:
            lines.append(f"{line} {frames[0]}{tail}")
        rows.append({
            "comm": comm if has["comm"] else "", "tid": 100 if has["tid"] else -1,
            "cpu": 1 if has["cpu"] else -1, "time_ns": time_ns, "period": 250000,
            "event": "cpu/mem-loads,ldlat=30/P" if has["event"] else "",
            "ip": ip, "symbol": symbols[0], "offset": 4, "object": "/opt/my p/prog",
        })  # fmt: skip
        stacks.append(";".join(SYMBOLS[one] or one for one in reversed(symbols)))
    return "\n".join([*lines, ""]), rows, stacks


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(case=cases())
def test_every_field_is_itself(
    tmp_path: Path, case: tuple[str, list[dict[str, Any]], list[str]]
) -> None:
    text, rows, stacks = case
    path = tmp_path / "text"
    path.write_text(text)
    profile = read(path)
    assert profile.unread == []
    assert profile.samples[list(rows[0])].to_dict("records") == rows
    assert list(profile.samples["stack"]) == stacks
