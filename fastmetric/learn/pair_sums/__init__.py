"""Sums of kernels over pairs, and their gradient.

`problem` says what is summed (`PairProblem`) and what every method offers (`PairSums`);
`all_pairs`, `class_trees` and `cutoff_grid` are the methods; `chooser` decides between them;
`costs` is the table that it decides by.
"""
