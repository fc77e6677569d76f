"""Matrices of pairs of cores: what numa and coherence share."""
