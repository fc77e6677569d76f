"""What Snakemake reads: the Snakefile of a plan and its profiles, texts that people may change."""

from __future__ import annotations

from pathlib import Path

__all__ = ["PROFILES", "write_workflow"]

# The marks below started/ are all that Snakemake knows: it removes the output of what it starts.
_SNAKEFILE = """\
# Starts one job for each key in todo.txt, on the node that the manifest names. Which rows are done,
# perflib knows: 'perflib fleet run' writes todo.txt, and each job looks for its result first.
import csv
import math
import os
import sys

with open("manifest.csv", newline="") as file:
    ROWS = {row["key"]: row for row in csv.DictReader(file)}
DEADLINE = os.environ.get("PERFLIB_FLEET_DEADLINE", "now+1days")


def todo(_):
    with open("todo.txt") as file:
        return [f"started/{key}" for key in file.read().split()]


rule all:
    input: todo


rule measure:
    output: "started/{key}"
    resources:
        perf_slot=1,
        cpus_per_task=-1,  # all that the node has; of memory, too
        mem_mb=0,
        disk_mb=0,
        runtime=lambda wildcards: math.ceil(int(ROWS[wildcards.key]["limit_s"]) / 60) + 2,
        slurm_extra=lambda wildcards: "--nodelist={} --exclusive --deadline={}".format(
            ROWS[wildcards.key]["node"], DEADLINE
        ),
    params:
        python=sys.executable,
    shell:
        "exec {params.python:q} -m perflib fleet job . {wildcards.key}"
"""

_COMMON = """\
keep-going: true
nolock: true  # perflib locks the plan
drop-metadata: true
rerun-triggers: [mtime]
runtime-source-cache-path: .snakemake/source-cache
latency-wait: 60
printshellcmds: false
"""

PROFILES = {
    "local": f"""\
# One measured job at a time.
executor: local
cores: 1
{_COMMON}""",
    "slurm": f"""\
# Your cluster's partition and account, if it wants them:
# default-resources: [slurm_partition=batch, slurm_account=physics]
executor: slurm
retries: 1
slurm-no-account: true
# Without accounting sacct says nothing, for ever; squeue does, with MinJobAge above a minute.
slurm-status-command: squeue
slurm-init-seconds-before-status-checks: 3
slurm-requeue: true  # a job of a lost node waits for it: with retries its own node is excluded
slurm-logdir: logs/slurm
{_COMMON}""",
}


def write_workflow(folder: Path) -> None:
    """Write the Snakefile and the profiles."""
    (folder / "Snakefile").write_text(_SNAKEFILE)
    for name, text in PROFILES.items():
        place = folder / "profiles" / name
        place.mkdir(parents=True)
        (place / "config.yaml").write_text(text)
