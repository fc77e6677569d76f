"""Names that somebody may give a function, a lock, a host, a tag, and runs full of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from perflib.model.recorded import change_texts
from perflib.model.run import Run
from perflib.store.run_files import load

RUNS = Path(__file__).parent / "data" / "runs"

LONG = "long" * 5_000
NAMES = (
    "_LT$impl$u20$T$GT$::f", "main::$_0", "$$", "a$b^c_$", "$\\frac{", "$x$", "_hidden", "_",
    "\x1b[2J\x1b]0;owned\x07", "two\nlines", "tab\tand\rreturn", "\u202egnp.exe", "\u2028apart",
    "\x9b31m", "<script>alert(1)</script>", "&amp;", "=cmd|' /C calc'!A0", "+1", "-rf", "@SUM(1)",
    "{x} {0!r}", "%s%n", "nan", "None", "inf", "1e999", "cpu99999999999999999999", "../../etc",
    "a;b", "a,b", '"', "'", "", " ", "\\", "#", "Größe", LONG,
)  # fmt: skip

# Columns of golden runs whose texts are names: whatever stands there, the run can be analysed.
OPEN = {
    "allocators": ("allocator", "function"),
    "alias_environment": ("link_order", "pairs"),
    "alias_offsets": ("function",),
    "counters": ("set", "event", "status"),
    "erasure_coding": ("implementation",),
    "event_profile": ("symbol", "object", "comm"),
    "memory_levels": ("order",),
    "threads": ("version", "backend", "limiting"),
}

_ROUNDS = 6

# Any text, and more often one of those above; files and Arrow hold no halves of characters.
texts = st.one_of(st.sampled_from(NAMES), st.text(max_size=60))


def hostile(name: str, first: int = 0) -> tuple[Run, set[str]]:
    """The golden run of an experiment with all its names exchanged, and those that it has now.

    The names are those of ``NAMES`` from a place on, round and round; each stands for one name.
    """
    run = load(RUNS / f"{name}.parquet")
    samples = run.samples
    if "round" in samples:  # a few rounds have all names
        samples = samples[samples["round"] < samples["round"].min() + _ROUNDS]
    if name == "alias_offsets":  # a name of nowhere has a panel of its own
        samples = samples[samples["function"].isin(samples["function"].unique()[:6])]
    given: dict[str, str] = {}

    def other(text: str) -> str:
        if text not in given:
            place = first + len(given)
            again = place // len(NAMES)
            given[text] = NAMES[place % len(NAMES)] + (f" {again}" if again else "")
        return given[text]

    columns = {column: change_texts(samples[[column]], other) for column in OPEN.get(name, ())}
    samples = samples.assign(**{key: frame[key] for key, frame in columns.items()})
    provenance = _exchanged(run.provenance, other)
    return replace(run, samples=samples, provenance=provenance), {*given.values()}


def _exchanged(provenance: dict[str, Any], other: Any) -> dict[str, Any]:
    """A provenance whose free texts are exchanged."""
    machine = provenance["machine"]
    named = {key: other(key) for key in ("hostname", "processor", "kernel") if key in machine}
    return {
        **provenance,
        "machine": {**machine, **named},
        "tag": other("tag"),
        "problems": [*map(other, provenance["problems"]), other("a problem")],
        "stopped": other("stopped"),
    }
