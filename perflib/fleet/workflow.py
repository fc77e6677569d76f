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
import sys

with open("manifest.csv", newline="") as file:
    ROWS = {row["key"]: row for row in csv.DictReader(file)}
WITHIN_S = int(config.get("within_s", 86400))


def minutes(wildcards):
    return math.ceil(int(ROWS[wildcards.key]["limit_s"]) / 60) + 2


def place(wildcards, attempt):
    # Slurm gives a job up when it can no longer end by its deadline: because its node is down.
    within_s = WITHIN_S if attempt == 1 else min(WITHIN_S, 600)
    node, seconds = ROWS[wildcards.key]["node"], within_s + 60 * minutes(wildcards)
    return f"--nodelist={node} --exclusive --deadline=now+{seconds}"


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
        runtime=minutes,
        slurm_extra=place,
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
