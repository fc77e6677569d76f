"""What this computer is made of."""
