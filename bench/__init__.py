"""Benchmarks: side by side with the peers (`versus`), over the commits, and the papers' own."""
