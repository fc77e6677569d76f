"""How a measurement is made: worker processes, interleaved rounds, a journal."""

from __future__ import annotations
