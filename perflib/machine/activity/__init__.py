"""Who else uses the cores."""
