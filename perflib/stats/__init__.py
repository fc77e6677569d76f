"""What numbers mean: intervals that hold when rounds are not independent, and decisions."""
