"""Profiles by hand, for a notebook: ``pl.profiles``.

Of the samples in ``run.table("profile")``: who calls whom (`top_down`, `bottom_up`), the same as a
graph (`flame_graph`, and `flame_figure`, which stands still), and a function's instructions
(`annotate`); of a run or of two, instructions side by side (`annotation`).
"""

from __future__ import annotations

from perflib.instruments.profile.annotate import annotate
from perflib.instruments.profile.views import bottom_up, top_down
from perflib.lab.annotation import annotation
from perflib.lab.flamegraph import flame_figure, flame_graph

__all__ = ["annotate", "annotation", "bottom_up", "flame_figure", "flame_graph", "top_down"]
