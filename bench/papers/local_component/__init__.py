"""Le Roux & Bach's experiments: `python -m bench.papers.local_component`."""
