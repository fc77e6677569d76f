"""What can be set on the machine, changed by name and put back."""
