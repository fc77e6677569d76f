"""What everything speaks of: a run, a finding, an error, and where they are kept."""
