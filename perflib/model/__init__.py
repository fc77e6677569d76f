"""What everything refers to: a run, a claim, a finding, an error."""
