"""What spoils measurements here, and the command that changes it."""
