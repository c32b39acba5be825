"""Der & Saul's experiments: `python -m bench.papers.coincidence`."""
