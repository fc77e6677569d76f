"""What each notebook asks: one module a lesson, each with a ``LESSON``; the answers stay here."""
