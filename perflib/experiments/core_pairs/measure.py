"""What the measurements of matrices of cores share: coarse rounds come first."""

from __future__ import annotations

from perflib.framework.experiment import Session


def ended_coarse(session: Session, whole_round: int, trials: int, pairs: int) -> list[str]:
    """A sentence for a run that ended before its first whole round, and what that would take.

    Parameters
    ----------
    session
        Of the measurement.
    whole_round
        The first round that visits all pairs.
    trials, pairs
        How many such a round has.
    """
    taken = [trial for trial in session.journal.trials if "columns" in trial]
    if max((trial["round"] for trial in taken), default=0) >= whole_round:
        return []
    round_s = trials * sum(trial["wall_s"] for trial in taken) / max(len(taken), 1)
    remark = f"the run ended in its coarse rounds: a round of all {pairs} pairs would take about "
    return [f"{remark}{round_s:.0f} s more"]
