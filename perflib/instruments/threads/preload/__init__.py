"""Threads as a preloaded library sees them, without privileges."""
