"""What Snakemake reads: the Snakefile of a plan and its profiles, texts that people may change."""

from __future__ import annotations

import shutil
from pathlib import Path

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
    shutil.copyfile(Path(__file__).with_name("Snakefile"), folder / "Snakefile")
    for name, text in PROFILES.items():
        place = folder / "profiles" / name
        place.mkdir(parents=True)
        (place / "config.yaml").write_text(text)
