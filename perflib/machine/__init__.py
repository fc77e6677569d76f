"""What this computer is, what state it is in, and what that does to a measurement."""
