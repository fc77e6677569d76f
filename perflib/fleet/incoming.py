"""What a scheduler's own transfer brought: moved to where a shared file system would have it."""

from __future__ import annotations

from perflib.fleet import results
from perflib.fleet.attempts import read
from perflib.fleet.plan import Plan


def take_in(plan: Plan) -> None:
    """Take in the files of ``incoming/``; what has not arrived whole stays aside, with its record.

    Raises
    ------
    OSError
        The plan's folder cannot be written.
    """
    folder = plan.folder / "incoming"
    for record in sorted(folder.glob("*.jsonl")):
        attempt = read(record)
        if attempt is None or attempt.key not in plan.rows:
            continue
        made = record.with_suffix(".parquet")
        if made.exists() and attempt.end:
            if results.sha256_of(made) == attempt.end.get("sha256"):
                results.publish(plan, attempt.key, made, attempt.name)
                made.unlink()
            else:
                made.rename(plan.folder / "second" / f"{record.stem}.damaged.parquet")
        record.rename(plan.folder / "attempts" / record.name)
