"""Vincent & Bengio's experiments: `python -m bench.papers.manifold_parzen`."""
