"""4K aliasing."""
