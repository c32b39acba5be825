"""Both sides of a comparison, ours and the peers': `nca`, `kernel_density`, `local_component`."""
