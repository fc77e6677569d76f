"""Threads on a screen: the timeline, the figures, the view that joins them."""
