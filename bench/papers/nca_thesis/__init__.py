"""The experiments of Oneață's thesis on NCA: `python -m bench.papers.nca_thesis`."""
