"""far_field."""
