"""Objectives, starts and solvers: from sums over pairs to a learnt map."""
