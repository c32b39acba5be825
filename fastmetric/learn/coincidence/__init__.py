"""coincidence."""
