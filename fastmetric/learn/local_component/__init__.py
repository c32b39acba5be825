"""local_component."""
