"""perflib."""
