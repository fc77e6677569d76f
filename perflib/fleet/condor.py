"""Run a plan on HTCondor: a submit description, and the files that its own transfer carries.

Not tried on a pool: the description is made, and read back by HTCondor's own reader in the tests.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from perflib.fleet.driver import driving
from perflib.fleet.engine import find, to_do
from perflib.fleet.incoming import take_in
from perflib.fleet.plan import Plan
from perflib.model.errors import UserError

__all__ = ["description", "submit", "write"]

_FILE = "condor.sub"


def description(plan: Plan, keys: Sequence[str], deadline_s: int) -> str:
    """The submit description of a plan's keys.

    Each job runs on the machine that the manifest names and takes the whole of it. What it needs
    is carried there, and ``incoming/`` is carried back.
    """
    carried = ["plan.json", "manifest.csv", "driver.txt"]
    carried += [plan.bundle_folder] if plan.bundle else []
    queued = (f"  {key}, {plan.rows[key].node}, {plan.rows[key].limit_s}" for key in keys)
    return f"""\
# Made by 'perflib fleet run --on htcondor'. Nodes have this Python, with perflib, at this place:
executable = {sys.executable}
transfer_executable = false
universe = vanilla
arguments = -m perflib fleet job . $(key) --transferred
initialdir = {plan.folder}
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
transfer_input_files = {", ".join(carried)}
transfer_output_files = incoming
requirements = (Machine == "$(machine)")
# The whole machine, if its slot can be parted; with static slots ask for what your pool calls it.
request_cpus = ifThenElse(isUndefined(TotalSlotCpus), 1, TotalSlotCpus)
allowed_execute_duration = $(limit_s) + 300
max_retries = 1
# A machine that is down, or unknown to the pool.
periodic_remove = (JobStatus == 1) && (time() - QDate > {deadline_s})
log = logs/condor.log
output = logs/$(key).out
error = logs/$(key).err
queue key, machine, limit_s from (
{chr(10).join(queued)}
)
"""


def write(plan: Plan, keys: Sequence[str], deadline_s: int) -> Path:
    """Write the submit description into the plan.

    Raises
    ------
    UserError
        The plan's folder is one that a submit description cannot name.
    """
    for text in (str(plan.folder), plan.bundle_folder):
        if any(sign in text for sign in "\n,\"'$()"):
            msg = f"HTCondor's description cannot name {text!r}: make the plan in another folder"
            raise UserError(msg)
    path = plan.folder / _FILE
    path.write_text(description(plan, keys, deadline_s))
    return path


def submit(plan: Plan, deadline_s: int) -> int:
    """Submit what is missing; HTCondor keeps the jobs, and nothing waits for them.

    Returns
    -------
    int
        How many jobs were submitted.

    Raises
    ------
    UserError
        Another driver is at work, there is no ``condor_submit``, or it refuses.
    """
    with driving(plan):
        take_in(plan)
        keys = to_do(plan)
        if not keys:
            return 0
        path = write(plan, keys, deadline_s)
        find("condor_submit")
        answer = subprocess.run(
            ["condor_submit", str(path)], capture_output=True, text=True, check=False
        )
        if answer.returncode:
            msg = f"condor_submit refuses {path}: {answer.stderr.strip() or answer.stdout.strip()}"
            raise UserError(msg)
        return len(keys)
