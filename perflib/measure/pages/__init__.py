"""Which pages memory and code are on."""
