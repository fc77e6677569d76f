"""Why the engine could not start or finish a job, from what Snakemake wrote into its log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from perflib.fleet.plan import Plan

_KEY = re.compile(r"\s+output: started/([0-9a-f]+)")
_JOB = re.compile(r"\s+jobid: (\d+)")
_MESSAGE = re.compile(r"\s+message: (.*)")
_AGAIN = re.compile(r"Trying to restart job (\d+)\.")
_STATUS = re.compile(r"status is: '?(\w+)")
_NOT_SUBMITTED = re.compile(r"sbatch: error: (.*)")

# Slurm's word for how a job ended: the state of its row, and what it means.
_STATES = {
    "CANCELLED": ("cancelled", "its Slurm job was cancelled"),
    "TIMEOUT": ("too slow", "its Slurm job ran into the time limit"),
    "DEADLINE": ("unreachable", "its node did not take the job before the deadline: is it down?"),
    "NODE_FAIL": ("lost", "its node failed"),
    "OUT_OF_MEMORY": ("failed", "its Slurm job ran out of memory"),
}


@dataclass(frozen=True)
class Complaint:
    """A state and a reason."""

    state: str
    reason: str


def complaints(plan: Plan) -> dict[str, Complaint]:
    """What the newest driver's log says, by key; nothing of jobs that are tried again."""
    logs = sorted((plan.folder / "logs").glob("driver-*.log"))
    return read_log(_text(logs[-1])) if logs else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def read_log(text: str) -> dict[str, Complaint]:
    """The complaints of a log, by key."""
    found: dict[str, Complaint] = {}
    keys: dict[str, str] = {}  # of Snakemake's numbers of jobs
    message, said, number, failing = "", "", "", False
    for line in text.splitlines():
        if match := _NOT_SUBMITTED.search(line):
            said = match[1]
        if line.startswith("Error in rule"):
            message, number, failing = "", "", True
        elif failing and (match := _MESSAGE.match(line)):
            message = match[1]
        elif match := _JOB.match(line):
            number = match[1]
        elif failing and (match := _KEY.match(line)):
            keys[number] = match[1]
            found[match[1]] = _complaint(message, said)
            said, failing = "", False
        elif match := _AGAIN.match(line):
            found.pop(keys.get(match[1], ""), None)
    return found


def _complaint(message: str, said: str) -> Complaint:
    status = _STATUS.search(message)
    if status and (known := _STATES.get(status[1])):
        return Complaint(*known)
    words = (said or message).strip().removesuffix("'.")
    if "nvalid node name" in words or "odes specified" in words or "odes not available" in words:
        return Complaint("unreachable", f"Slurm says: {words}")
    if said:
        return Complaint("failed", f"its job was not accepted: {words}")
    if words in ("", "None"):
        words = "its job ended before perflib began (see logs/)"
    return Complaint("failed", words)
