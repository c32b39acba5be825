"""kernel_sums."""
