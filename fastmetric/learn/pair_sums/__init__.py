"""pair_sums."""
