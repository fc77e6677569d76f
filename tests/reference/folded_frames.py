"""The frames that a line of a call chain stands for, as perf_script.c names them."""

from __future__ import annotations

import re

NEITHER, ORPHAN, CUT, TOO_LONG = (
    "neither a sample's first line nor a frame",
    "a frame that belongs to no sample",
    "cut: a part of it is missing",
    "longer than 1 MiB",
)
UNKNOWN = "[unknown]"
INT32, INT64 = 2**31 - 1, 2**63 - 1

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
