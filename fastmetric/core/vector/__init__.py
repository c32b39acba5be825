"""The innermost loops, held in vector registers: exp, distances, weighted sums.

* `exp`: what is exp(x), inside a loop that LLVM vectorises? `core.error_bounds` charges its
  rounding.
* `register_blocks`: what are the squared distances, or the weighted sums, of a block of pairs?
* `compensated_sums`: how are many terms added up without an error that grows with their number?
* `panel_scan`: which of the points of a panel are nearer to one query than a bound?

The data's way: `make_panels` lays reference points out coordinate by coordinate; `sq_distances`
fills a tile of squared distances; the kernel is applied in place, by `exp`; `add_weighted_sums`
multiplies the tile with the points again, which gives gradients and moments.

Decisions
---------
**Sums with carries.** A certificate that holds for any number of points cannot add them one after
the other: ten million equal terms lose seven times what is promised, since all roundings agree. A
row of a tile is added as a tree of eight vectors and then with carries, and rows are added in twice
the precision: 4 % of the time of a density within 1e-2, nothing measurable in exact sums in three
dimensions. Squared distances in 9 to 14 dimensions are added by halves (4 %), beyond with carries
(a third more of exact sums in 60 dimensions), so that their error does not grow with the dimension,
either. NCA's pairs are added plainly.

**Vector code written out.** LLVM's vectoriser does not find a register block in a nest of loops.
The two innermost blocks are therefore written as vector code, through Numba's `intrinsic`. Each
keeps 6 x 2 vectors of sums in registers; a vector is 32 bytes, four numbers in float64 and eight
in float32.

**Distances by differences.** |q - r|^2 is the sum of squared differences, not |q|^2 + |r|^2 - 2
q.r. The product form loses about eps (|q|^2 + |r|^2), whatever the distance: for clusters far
apart no digit is left. Up to some 25 dimensions it would not be faster either: it saves the
subtraction, but subtractions and multiply-adds use different pipes on current CPUs. Beyond, where
the points of a tile leave the first-level cache, products by BLAS are faster; densities take them
where a bound shows that they lose nothing that matters (`core.pairs.product_tiles`).

**An exp that vectorises.** LLVM has no vector exp to call from a Numba loop, and a scalar call per
pair would take most of the time. `exp` reduces the range by x = k ln 2 + r, takes e^r from a
polynomial that interpolates at Chebyshev nodes (degree 10 in float64, relative error below 6e-16
before rounding; degree 6 in float32, below 6e-9), and adds k to the exponent bits. Below -708 (-87
in float32) the result is exactly 0: denormal numbers are slow.
"""
