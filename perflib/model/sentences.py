"""Words for findings: the only place in which a sentence is made of a claim and its numbers.

Nothing here decides anything, and nothing elsewhere reads what is written here: with every sentence
replaced by another, all verdicts, effects and tables stay the same (a test does that).

Templates are those of ``str.format`` and of five formats more: ``{bytes:size}`` (``32 KiB``),
``{names:list}`` (``a, b and c``; ``{values:list +.1f}``: each in that format),
``{share:interval %}`` (``12 % [9, 15]``) and ``{mode:word}`` (``one-set``). A sentence begins with
a capital if its template begins with a word: a name that is filled in stays as it is. Prose that is
filled in there is ``{doing:first}`` (``Reading``).
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perflib.model.escape import visible

if TYPE_CHECKING:
    from perflib.model.finding import Finding
    from perflib.stats.decide import Reason

RECORDED = "Recorded on "  # begins each sentence about a recorded machine
_KIB = 1024
_UNITS = {"percent": "%", "percentage points": "points"}
_NOT_DECIDED = "It is not decided whether {claim}: {estimate}."
# The reasons that all claims share; a claim declares its own ones.
_REASONS: Mapping[str, str] = {
    "no_interval": "An interval needs two rounds or more.",
    "clear": "The whole interval is on the claimed side.",
    "excluded": "{threshold_unit} is outside the interval.",
    "open": "{threshold_unit} is inside the interval: more rounds narrow it.",
    "ties": "All values are equal to the last digit: a clock stood still, or a level of ties is "
    "compared with another. Neither is evidence.",
    "few_values": "{column} has only {values} different values: the clock stood still, or is too "
    "coarse.",
    # of several runs judged as one
    "not_surviving": "Alone it is supported, but it does not survive the correction over all "
    "{claims} anomaly claims of this investigation (p = {p:.2g}, corrected {together:.2g}).",
    # of one core compared with the others: what the interval cannot know
    "nothing_to_compare": "A comparison needs two cores or more, and two batches free of "
    "interference.",
    "chance": "With the cores' names exchanged at random it occurs too often (p = {p:.2g}, "
    "corrected for the number of cores): more rounds are needed.",
    "segments_disagree": "Not every segment of the run shows it ({segments:list +.1f} %).",
    "every_segment": "Every segment of the run shows it (p = {p:.2g}).",
}


def subject(finding: Finding) -> str:
    """The short name of what a finding is about."""
    return render(finding.of.subject, finding.about).strip()  # what it begins with may be empty


def claim(finding: Finding) -> str:
    """The exact claim, without a full stop."""
    return render(finding.of.exact, _values(finding))


def plain(finding: Finding) -> str:
    """One sentence for people that begins with the result."""
    values = _values(finding)
    template = finding.of.plain.get(finding.verdict, _NOT_DECIDED)
    if template is _NOT_DECIDED:
        values["claim"] = claim(finding)
    return recorded(finding, render(capital(template), values))


def recorded(finding: Finding, sentence: str) -> str:
    """A sentence about a recorded machine says so: it is not about this one."""
    return f"{RECORDED}{finding.recorded}: {sentence}" if finding.recorded else sentence


def recorded_apart(texts: Sequence[str]) -> tuple[str, list[str]]:
    """Sentences that are shown together: what says of all that they are recorded, and the rest.

    >>> recorded_apart(["Recorded on amd-guest, 2026: A.", "Recorded on amd-guest, 2026: B."])
    ('Recorded on amd-guest, 2026', ['A.', 'B.'])
    """
    heads = {text.partition(": ")[0] for text in texts}
    head = heads.pop() if len(heads) == 1 else ""
    if not head.startswith(RECORDED):
        return "", [*texts]
    return head, [text.removeprefix(f"{head}: ") for text in texts]


def reason(finding: Finding) -> str:
    """The reasons of a verdict, one sentence each."""
    return " ".join(filter(None, (_reason(finding, one) for one in finding.reasons)))


def _reason(finding: Finding, one: Reason) -> str:
    template = finding.of.reasons.get(one.code) or _REASONS[one.code]
    return render(capital(template), {**_values(finding), **one.numbers})


def together(findings: list[Finding]) -> str | None:
    """One sentence for several findings of one claim with one verdict, if the claim has one."""
    first = findings[0]
    template = first.of.together.get(first.verdict)
    if template is None or len(findings) < 2:
        return None
    widths = [(one.high - one.low) / 2 for one in findings]
    widest = max((width for width in widths if math.isfinite(width)), default=math.nan)
    unit = {"percent": "percentage points"}.get(first.unit, first.unit)
    values = _values(first) | {
        "count": len(findings),
        "named": _listed(one.subject for one in findings),
        "each": {key: [str(one.about[key]) for one in findings] for key in first.about},
        "widest": f"± {number(widest, widest)} {short_unit(unit)}"
        if math.isfinite(widest)
        else "no interval",
    }
    return recorded(first, render(capital(template), values))


# --- numbers -------------------------------------------------------------------------------------


def short_unit(unit: str) -> str:
    """A unit as it stands after a number."""
    head, space, rest = unit.partition(" of ")
    return _UNITS.get(unit) or _UNITS.get(head, head) + space + rest


def size(size_bytes: float) -> str:
    """A number of bytes for a reader.

    >>> size(32768), size(1572864)
    ('32 KiB', '1.5 MiB')
    """
    for unit in ("B", "KiB", "MiB"):
        if size_bytes < _KIB:
            return f"{size_bytes:.4g} {unit}"
        size_bytes /= _KIB
    return f"{size_bytes:.4g} GiB"


def number(value: float, half_width: float = math.nan) -> str:
    """A number with as many digits as its uncertainty is worth, and a true minus sign.

    >>> number(12.3456, 0.21), number(-0.1234, 2.0), number(1.5)
    ('12.35', '−0.1', '1.50')
    """
    digits = 2
    if math.isfinite(half_width) and half_width > 0:
        digits = min(3, max(0, 1 - math.floor(math.log10(half_width))))
    text = f"{round(value, digits) + 0.0:.{digits}f}"
    return text.replace("-", "−")


def estimate(finding: Finding) -> str:
    """Effect, unit and uncertainty: ``−0.1 % ± 0.2``, or with both ends where they are uneven."""
    effect, low, high = finding.effect, finding.low, finding.high
    unit = short_unit(finding.unit)
    if not math.isfinite(effect):
        return "nothing could be estimated"
    half = (high - low) / 2
    if half > 0 and abs(high + low - 2 * effect) < 0.2 * half:
        return f"{number(effect, half)} {unit} ± {number(half, half)}"
    return _interval(effect, low, high, unit)


def _interval(effect: float, low: float, high: float, unit: str) -> str:
    half = (high - low) / 2
    text = f"{number(effect, half)} {unit}".rstrip()
    # What was counted exactly has no width, and needs no interval.
    return f"{text} [{number(low, half)}, {number(high, half)}]" if half > 0 else text


def _values(finding: Finding) -> dict[str, Any]:
    """All that a template may name."""
    values = {**finding.about, **finding.facts}
    values |= {
        "effect": finding.effect,
        "low": finding.low,
        "high": finding.high,
        "half_width": (finding.high - finding.low) / 2,
        "unit": short_unit(finding.unit),
        "estimate": estimate(finding),
        "verdict": finding.verdict,
    }
    if finding.threshold is not None:
        values["threshold"] = finding.threshold
        values["threshold_unit"] = f"{finding.threshold:g} {short_unit(finding.unit)}"
    return values


# --- templates -----------------------------------------------------------------------------------


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        """``str.format``, and the formats of the module's docstring."""
        if format_spec == "size":
            return size(value)
        if format_spec == "word":
            return str(value).replace(" ", "-")
        if format_spec == "first":
            return capital(str(value))
        if format_spec.startswith("interval"):
            effect, low, high = value
            return _interval(effect, low, high, format_spec[8:].strip())
        if format_spec.startswith("list"):
            inner = format_spec[4:].strip()
            return _listed(format(item, inner) for item in value)
        return str(super().format_field(value, format_spec))


def render(template: str, values: Mapping[str, Any]) -> str:
    """A template with its values, in one line: names are data (`perflib.model.escape`)."""
    return visible(_Formatter().vformat(template, (), values))


def _listed(words: Iterable[str]) -> str:
    """``a, b and c``."""
    *most, last = list(words) or ["none"]
    return f"{', '.join(most)} and {last}" if most else last


def capital(template: str) -> str:
    """A template begins with a capital, unless its first word is, or has, something filled in."""
    first = template.partition(" ")[0]
    return template[:1].upper() + template[1:] if first.isalpha() and first.islower() else template
