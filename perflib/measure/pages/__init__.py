"""Which pages memory and code lie on."""
