"""What kernels_c/readers/perf_script.c does, line by line with regular expressions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

NEITHER, ORPHAN, CUT, TOO_LONG = (
    "neither a sample's first line nor a frame",
    "a frame that belongs to no sample",
    "cut: a part of it is missing",
    "longer than 1 MiB",
)
BLANK = "\t-\r "
UNKNOWN = "[unknown]"
INT32, INT64 = 2**31 - 1, 2**63 - 1
LONGEST_COMM = 256

WORD = re.compile(f"[^{BLANK}]+")
FRAME = re.compile(f"[{BLANK}]*([0-9a-fA-F]{{1,16}})(?:([{BLANK}]+)(.+))?", re.DOTALL)
OFFSET = re.compile(r"\+0x([0-9a-fA-F]*)\Z")
IDS = re.compile(r"(-1|\d+)(?:/(-1|\d+))?", re.ASCII)
DATE = re.compile(
    rf"[{BLANK}]+\d[^{BLANK}]{{3}}-[^{BLANK}]{{2}}-[^{BLANK}]{{2}}"
    rf"[{BLANK}]+\d[^{BLANK}]:[^{BLANK}]{{2}}:[^{BLANK}]{{2,}}",
    re.ASCII,
)
CORE = re.compile(r"\[(\d+)\]", re.ASCII)
CPU = re.compile(rf"[{BLANK}]+\[(\d+)\](?=[{BLANK}]|\Z)", re.ASCII)
MODE = re.compile(rf"[{BLANK}]+[A-Z]{{1,6}}(?=[{BLANK}]|\Z)")
TIME = re.compile(rf"[{BLANK}]+(\d+)\.(\d{{1,9}}):(?=[{BLANK}]|\Z)", re.ASCII)
PERIOD = re.compile(rf"[{BLANK}]*(\d+)(?=[{BLANK}]+[^{BLANK}]*:(?:[{BLANK}]|\Z)|\Z)", re.ASCII)
EVENT = re.compile(rf"[{BLANK}]*([^{BLANK}]+):(?=[{BLANK}]|\Z)")
SOURCE = re.compile(rf"[{BLANK}].*:\d+(?:.\(discriminator [^(]*\))?\Z", re.ASCII | re.DOTALL)
RECORD = re.compile(rf"---|(?:(?!PERF_RECORD_).)*(?<![^{BLANK}])PERF_RECORD_", re.DOTALL)
RUST_HASH = re.compile(r"h[0-9a-fA-F]{16}\Z")
RUST = {
    "$SP$": "@",
    "$BP$": "*",
    "$RF$": "&",
    "$LT$": "<",
    "$GT$": ">",
    "$LP$": "(",
    "$RP$": ")",
    "$C$": ",",
    "$u7e$": "~",
    "$u20$": " ",
    "$u27$": "'",
    "$u3d$": "=",
    "$u5b$": "[",
    "$u5d$": "]",
    "$u7b$": "{",
    "$u7d$": "}",
    "$u3b$": ";",
    "$u2b$": "+",
    "$u21$": "!",
    "$u22$": '"',
    "..": "::",
}


def undo_rust(name: str) -> str:
    if not RUST_HASH.search(name):
        return name
    name = name[:-17].removesuffix("::")
    name = name[1:] if name.startswith("_$") else name
    done = ""
    while name:
        escape = next((e for e in RUST if name.startswith(e)), None)
        if escape is None and name[0] == "$":
            return done + name
        done += RUST[escape] if escape else name[0]
        name = name[len(escape) if escape else 1 :]
    return done


OPERATOR = re.compile(r"operator(?:\(\)|[<>\-=!+*/%^&|~,\[\]]*)")
GOES_ON = re.compile(r"(?: const)?(?: volatile)?(?: &&)?(?: &)?::")


def closed(text: str, i: int) -> int:
    """Behind the parenthesis that closes the one at ``i``."""
    depth = 0
    for j in range(i, len(text)):
        depth += (text[j] == "(") - (text[j] == ")")
        if depth == 0:
            return j + 1
    return len(text)


def without_arguments(name: str) -> str:
    depth, i = 0, 0
    while i < len(name):
        operator = OPERATOR.match(name, i)
        if operator and not re.match(
            r"[0-9A-Fa-f_g-zG-Z\x7b-\xff\x5b-\x60]", name[i - 1 : i] or "("
        ):
            i = operator.end()
        elif name.startswith("->", i):
            i += 2
        elif name[i] == "(":
            end = closed(name, i)
            named = name.startswith("(anonymous namespace)", i) or name[i - 1 : i] == "."
            inner = name[max(0, i - 8) : i] == "decltype" or GOES_ON.match(name, end)
            if depth <= 0 and not named and not inner:
                return name[:i]
            i = end
        else:
            depth += (name[i] in "<{[") - (name[i] in ">}]")
            i += 1
    return name


def inlined_calls(symbol: str) -> list[str]:
    """The parts of ``a->b``: no part ends at an arrow of an operator or of a type."""
    parts, depth, begin, i = [], 0, 0, 0
    while i + 1 < len(symbol):
        if symbol.startswith("->", i):
            of_operator = symbol[max(begin, i - 8) : i] == "operator"
            if depth <= 0 and not of_operator and i > begin and symbol[i - 1] not in " \t\n\v\f\r":
                parts.append(symbol[begin:i])
                begin, depth = i + 2, 0
            i += 2
        else:
            depth += (symbol[i] in "<({[") - (symbol[i] in ">)}]")
            i += 1
    return [*parts, symbol[begin:]]


def folded_frames(symbol: str, obj: str, java: bool) -> list[str]:
    """The frames that one line stands for, the outermost first."""
    alone = symbol.startswith("(") and symbol.find(")") == len(symbol) - 1
    if alone and symbol != "(anonymous namespace)":
        return []
    frames: list[str] = []
    for part in inlined_calls(undo_rust(symbol)):
        name = part
        if part == UNKNOWN and obj != UNKNOWN:
            name = f"[{obj.rpartition('/')[2][-255:]}]"
        name = without_arguments(name.replace(";", ":"))
        if java and name.startswith("L") and "/" in name:
            name = name[1:]
        if frames and "_[i]" not in name:
            name += "_[i]"
        frames.append(name)
    return frames


@dataclass
class Frame:
    ip: int
    symbol: str = ""
    offset: int = -1
    obj: str | None = None
    written: bool = False


def split_object(text: str) -> tuple[str, str | None]:
    """``name (object)``: the brackets that end the line, with those within."""
    if not text.endswith(")"):
        return text, None
    depth = 0
    for i in range(len(text) - 1, -1, -1):
        depth += (text[i] == ")") - (text[i] == "(")
        if depth == 0:
            blank_before = i == 0 or re.match(f"[{BLANK}]", text[i - 1])
            return (text[:i], text[i + 1 : -1]) if blank_before else (text, None)
    openings = [m.start() for m in re.finditer(rf"(?:(?<=[{BLANK}])|\A)\(", text)]
    return (text[: openings[-1]], text[openings[-1] + 1 : -1]) if openings else (text, None)


def strip(text: str) -> str:
    return text.strip(" \t\n\v\f\r")


FIELD = re.compile(r"(?:ilen:|insn:|IPC:|=>)\Z|ABI:")
FLAG = re.compile(
    "call|return|jcc|jmp|int|iret|syscall|sysret|async|hw|tx|abrt|tr|strt|end|br|miss|vmentry|vmexit"
)
PAGE_SIZE = re.compile(r"0*[1-9]\d{0,3}[KMG]|N/A", re.ASCII)
HEX = re.compile(r"[0-9a-fA-F]{1,16}")


def has_branches(text: str) -> bool:
    marks = ("/P/", "/M/", "/-/", "/PN/", "/MN/")
    return any(mark in text for mark in marks)


def is_behind(text: str) -> bool:
    """Whether all of it is what ``-F`` writes behind a frame."""
    text = text.partition("\t\t")[0]
    if text.startswith("\t") or (has_branches(text) and " (" not in text):
        return True
    for word in WORD.findall(text):
        if FIELD.match(word):
            return True
        branch = word.startswith("0x") and has_branches(word)
        if not HEX.fullmatch(word) and not PAGE_SIZE.fullmatch(word) and not branch:
            return False
    return True


def of_frame(text: str) -> str:
    for found in re.finditer(rf"\)(?=[{BLANK}]|\Z)", text):
        if is_behind(text[found.end() :]):
            return text[: found.end()]
    for word in WORD.finditer(text):
        if FIELD.match(word[0]):
            return strip(text[: word.start()])
    return text


def read_frame(line: str) -> Frame | None:
    match = FRAME.fullmatch(line)
    if match is None:
        return None
    ip, gap, rest = int(match[1], 16), match[2], of_frame(strip(match[3] or ""))
    if not rest:
        return Frame(ip)
    name, obj = split_object(rest)
    symbol = strip(name) if obj is not None else rest
    if obj is not None and not symbol and len(gap) > 1:
        symbol = gap[-1]
    offset = -1
    if found := OFFSET.search(symbol):
        symbol = symbol[: found.start()]
        digits = found[1]
        if digits and len(digits) <= 16 and int(digits, 16) <= INT64:
            offset = int(digits, 16)
    return Frame(ip, symbol, offset, obj, True)


@dataclass
class Head:
    comm: str
    pid: int
    tid: int
    cpu: int
    time_ns: int | None
    period: int
    event: str | None
    frame: Frame | None
    skipped: bool


def is_address(word: re.Match[str]) -> bool:
    """A word behind others: an address, or a function that is called "add"."""
    text, digits = word[0], len(re.findall("[0-9]", word[0]))
    padded = re.match(f"[{BLANK}]", word.string[word.start() - 2 :])
    likely = text[0] in "0123456789" or (digits >= 2 and len(text) > 5) or padded
    return bool(HEX.fullmatch(text) and likely)


def after_flags(text: str) -> str:
    words = list(WORD.finditer(text))
    number = 0
    while number < len(words) and FLAG.fullmatch(words[number][0].partition("/")[0]):
        number += 1
    if number == 0:
        return text
    if number < len(words) and re.fullmatch(r"\(.*\)", words[number][0], re.DOTALL):
        number += 1
    if number == len(words):
        return ""
    goes_on = is_address(words[number]) or words[number][0].startswith("/")
    return text[words[number].start() :] if goes_on else text


def before_frame(text: str) -> str:
    """What follows the fields that ``-F`` writes before the instruction's address."""
    text = after_flags(text)
    for found in re.finditer(rf"\)(?=[{BLANK}])", text):
        words = list(WORD.finditer(text, found.end()))
        opening = text.rfind("(", 0, found.start())
        of_data = opening > 0 and re.match(f"[{BLANK}]\\([/\\[]", text[opening - 1 :])
        goes_on = words and (
            words[0][0].startswith("/") or (len(words) > 1 and is_address(words[0]))
        )
        if goes_on and of_data and not is_behind(text[found.end() :]):
            text = text[words[0].start() :]
            break
    while True:
        words = list(WORD.finditer(text))
        first, second = ([*(word[0] for word in words[:2]), "", ""])[:2]
        number = 1
        if second.startswith("|"):
            number = 2
            while number < len(words) and not is_address(words[number]):
                if words[number][0].startswith("/"):
                    break
                number += 1
        elif not first.startswith("/") and not (
            HEX.fullmatch(first) and second and (second.startswith("/") or is_address(words[1]))
        ):
            return text
        text = text[words[number].start() :] if number < len(words) else ""


def is_tracepoint(event: str) -> bool:
    _, colon, modifiers = event.rpartition(":")
    return bool(colon) and not set(modifiers) <= set("ukhGHIpPSDWeb")


def read_tail(rest: str, with_time: bool) -> dict[str, Any] | None:
    found: dict[str, Any] = {"cpu": -1, "time_ns": None, "period": -1, "event": None}
    if (cpu := CPU.match(rest)) and int(cpu[1]) <= INT32:
        found["cpu"] = int(cpu[1])
        rest = rest[cpu.end() :]
    if with_time:
        if mode := MODE.match(rest):
            rest = rest[mode.end() :]
        if date := DATE.match(rest):
            rest = rest[date.end() :]
        time = TIME.match(rest)
        if time is None or int(time[1]) > 9223372035:
            return None
        found["time_ns"] = int(time[1]) * 10**9 + int(time[2].ljust(9, "0"))
        rest = rest[time.end() :]
    if (period := PERIOD.match(rest)) and int(period[1]) <= INT64:
        found["period"] = int(period[1])
        rest = rest[period.end() :]
    if event := EVENT.match(rest):
        if event[1].startswith("PERF_RECORD_"):
            return None
        found["event"] = event[1]
        rest = rest[event.end() :]
    rest = strip(rest)
    words = list(WORD.finditer(rest))
    if found["event"] is None and found["period"] < 0 and len(words) > 1:
        number, following = words[0][0], words[1]
        flag = FLAG.fullmatch(following[0].partition("/")[0])
        data = is_address(following) or following[0].startswith("/") or flag
        if re.fullmatch("[0-9]+", number) and int(number) < 10**10 and data:
            found["period"] = int(number)
            rest = rest[following.start() :]
    tracepoint = is_tracepoint(found["event"] or "")
    whole, rest = rest, rest if tracepoint else before_frame(rest)
    found["skipped"] = rest != whole
    frame = read_frame(rest)
    if tracepoint and frame and (frame.obj is None or len(rest.split(None, 1)[0]) < 8):
        frame = None
    found["frame"] = frame
    if not whole:
        good = with_time or found["event"] is not None
    elif found["event"] is None:
        before_frames = with_time and found["period"] >= 0
        before_frames &= not frame.written if frame else not rest
        good = before_frames or (frame is not None and frame.obj is not None)
    else:
        good = with_time or tracepoint or (frame is not None and frame.written)
    return found if good else None


def read_core(word: str) -> int:
    core = CORE.fullmatch(word)
    return int(core[1]) if core and int(core[1]) <= INT32 else -1


def after_guest(line: str) -> str:
    words = [*WORD.finditer(line)][:3]
    if words and words[0][0].startswith("VM:"):
        number = 2 if words[0][0] == "VM:" else 1
        line = line[words[min(number, len(words)) - 1].end() :]
        words = words[number:]
    if words and words[0][0].startswith("VCPU:"):
        line = words[0].string[words[0].end() :]
    return line


def read_head(line: str) -> Head | None:
    line = after_guest(line)
    for with_time, with_ids in ((True, True), (True, False), (False, True), (False, False)):
        before = ""
        for word in WORD.finditer(line):
            last, before = before, word[0]
            if word.start() > LONGEST_COMM:
                break
            comm = strip(line[: word.start()])
            if not with_ids:
                tail = None
                number = re.fullmatch("[0-9]+", last) and int(last) <= INT64
                if (with_time or read_core(word[0]) >= 0) and not number:
                    tail = read_tail(" " + line[word.start() :], with_time)
                if tail is not None:
                    return Head(comm, -1, -1, **tail)
                continue
            ids = IDS.fullmatch(word[0])
            if ids is None or any(int(number or 0) > INT32 for number in ids.groups()):
                continue
            tail = read_tail(line[word.end() :], with_time) if read_core(last) < 0 else None
            if tail is not None and (with_time or tail["event"] is not None or comm):
                pid, tid = (int(ids[1]), int(ids[2])) if ids[2] else (-1, int(ids[1]))
                width = word.end() - line.index(comm) - len(comm)
                bare = not with_time and comm and tail["event"] is not None and tail["cpu"] < 0
                if bare and tail["period"] < 0 and pid < 0 and width > 10:
                    tail["period"], tid = tid, -1
                return Head(comm, pid, tid, **tail)
    return None


def is_field_line(line: str) -> bool:
    if line.startswith("\t\t"):
        frame = read_frame(line)
        return frame is None or frame.obj is None or frame.obj.startswith("%")
    first = re.match(f"[{BLANK}]+([^{BLANK}]+)", line)
    branches = has_branches(line) and " (" not in line
    return first is not None and (bool(FIELD.match(first[1])) or branches)


@dataclass
class Parsed:
    samples: list[dict[str, Any]] = field(default_factory=list)
    unread: list[tuple[int, str, str]] = field(default_factory=list)
    header: list[str] = field(default_factory=list)
    lines: int = 0
    records: int = 0


def text_of(latin: str) -> str:
    """Bytes were read as Latin-1, so that each is a character; what they mean is UTF-8."""
    return latin.encode("latin-1").decode(errors="replace")


class _Reader:
    def __init__(self) -> None:
        self.parsed = Parsed()
        self.now: dict[str, Any] | None = None
        self.frames: list[str] = []  # the innermost first
        self.leaf: Frame | None = None
        self.inlined = False
        self.alone = False  # its frame stood on its first line
        self.after_frame = False
        self.seen: set[str] = set()

    def end_sample(self) -> None:
        if self.now is not None:
            stack = ";".join(reversed(self.frames))
            row = self.now | {"stack": stack}
            self.parsed.samples.append(
                {key: text_of(v) if isinstance(v, str) else v for key, v in row.items()}
            )
        self.now = None

    def not_read(self, line: str, reason: str) -> None:
        self.parsed.unread.append((self.parsed.lines, text_of(line[:160]), reason))
        if not re.match(f"[{BLANK}]", line):
            self.end_sample()
        self.after_frame = False

    def is_cut(self, frame: Frame, text_ends: bool) -> bool:
        if frame.obj is None:
            return text_ends or "object" in self.seen
        strange = not frame.obj.startswith(("/", "[")) and frame.obj != "inlined"
        return frame.obj == "deleted" or (text_ends and strange)

    def begin_sample(self, head: Head, text_ends: bool) -> bool:
        alone = head.frame is not None and head.frame.written
        if ("time" in self.seen and head.time_ns is None) or (
            "event" in self.seen and head.event is None
        ):
            return False
        if self.is_cut(head.frame, text_ends) if alone and head.frame else text_ends:
            return False
        self.end_sample()
        self.seen |= {"time"} if head.time_ns is not None else set()
        self.seen |= {"event"} if head.event is not None else set()
        self.frames, self.leaf, self.inlined, self.after_frame = [], None, False, False
        self.now = {
            "time_ns": -1 if head.time_ns is None else head.time_ns,
            "cpu": head.cpu,
            "pid": head.pid,
            "tid": head.tid,
            "comm": head.comm,
            "event": head.event or "",
            "period": head.period,
            "ip": head.frame.ip if head.frame and not head.skipped else 0,
            "symbol": UNKNOWN,
            "offset": -1,
            "object": UNKNOWN,
        }
        if alone and head.frame:
            self.add_frame(head.frame)
        self.alone = alone
        return True

    def add_frame(self, frame: Frame) -> None:
        assert self.now is not None
        name, obj = frame.symbol or UNKNOWN, frame.obj or UNKNOWN
        java = self.now["comm"].startswith("java")
        self.frames += reversed(folded_frames(name, obj, java))
        if self.leaf is None:
            shown = strip(name) or UNKNOWN
            self.now |= {"ip": frame.ip, "offset": frame.offset, "symbol": shown, "object": obj}
            self.leaf = frame
            self.inlined = obj == "inlined"
        elif self.inlined and obj != "inlined":
            self.now["object"] = obj
            self.inlined = False
        if frame.obj is not None:
            self.seen.add("object")
        self.after_frame = True

    def read_line(self, line: str, text_ends: bool) -> None:
        self.parsed.lines += 1
        if len(line) >= 1 << 20:
            return self.not_read(line, TOO_LONG)
        line = line.rstrip(" \t\n\v\f\r")
        if not line:
            self.end_sample()
            self.after_frame = False
            return None
        command = re.match(f"#[^{BLANK}]", line) and read_head(line)
        if line.startswith("#") and not command:
            self.parsed.header.append(line)
            return None
        if self.after_frame and is_field_line(line):
            return None
        frame = read_frame(line)
        may_be_frame = frame is not None and self.now is not None
        may_be_head = True
        if may_be_frame and re.match(f"[{BLANK}]", line) and not self.alone:
            words = WORD.findall(line)
            may_be_head = len(words) > 1 and (
                words[1][0] in "0123456789-" or read_core(words[1]) >= 0
            )
        head = read_head(line) if may_be_head else None
        if head is not None:
            if not self.begin_sample(head, text_ends):
                self.not_read(line, CUT)
        elif may_be_frame and frame is not None:
            if self.is_cut(frame, text_ends):
                self.not_read(line, CUT)
            else:
                if self.alone:  # that frame was of the data
                    self.frames, self.leaf, self.inlined, self.alone = [], None, False, False
                self.add_frame(frame)
        elif RECORD.match(line):
            self.end_sample()
            self.parsed.records += 1
        elif not (self.after_frame and SOURCE.match(line)):
            self.not_read(line, ORPHAN if frame is not None else NEITHER)
        return None


def perf_script(data: bytes) -> Parsed:
    """Read a whole text."""
    reader = _Reader()
    lines = data.decode("latin-1").split("\n")
    for i, line in enumerate(lines):
        last = i == len(lines) - 1
        if line or not last:
            reader.read_line(line, last)
    reader.end_sample()
    return reader.parsed
