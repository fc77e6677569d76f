"""Simulated counters, for machines without a PMU."""
