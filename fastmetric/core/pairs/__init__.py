"""Sums over pairs, and their gradients, where every pair that counts is computed.

* `pair_tiles`: how are points laid out, and how is a tile of weights turned into gradients?
* `partition`: how are the pairs cut into blocks?
* `dense_pairs`: what are the class sums and gradients of one block of all pairs?
* `cell_list`: what are those of a compact kernel, over the pairs within its cutoff?
* `product_tiles`: what are sums of Gaussians out of products of matrices, and which terms are
  computed again by differences?
* `product_weights`: what are the responsibilities of a panel of rows, out of a matrix product?
* `neighbour_list`: what are those where few pairs count, each pair once?
* `labelled_pairs`: what are likelihood, gradient, length scales and impostors of given pairs?

The data's way (dense): `make_points` pads and lays out; `symmetric_blocks` or `row_blocks` cut; a
tile of squared distances becomes kernels (first pass) or weights (second pass) in place;
`tile_gradient` turns weights into sums of weighted differences [CCK-6]. Every function returns the
partial results of one block in float64; the caller adds them in the order of the blocks.

Decisions
---------
**Blocks depend on sizes only.** A side of a block has at most 2048 points, fewer in many
dimensions, so that a block holds at most about 2.5e8 pairs times dimensions: 5 to 100 ms. Small
data are still cut into up to eight pieces a side of at least 512 points, so that threads can share
the work.

**Tiles of 48 x 576.** In float64 a tile is 216 KiB and fits the second-level cache of one core. 48
is a multiple of the six rows of a register block and of its columns in both precisions, so no loop
has a ragged end. Points are padded with zeros to a multiple of 48. A pair that must not count (a
point with itself, the mirrored half of a symmetric block) gets an infinite distance, where the
kernel is zero.

**Two families.** Symmetric blocks visit each unordered pair once, with the plain kernel. Row
blocks visit every ordered pair, twice the work, with each row relative to its nearest neighbour or
to the log of its total, so that nothing underflows. A row has *underflowed* if its plain sum is
below 1e-280 (1e-28 in float32); such rows are computed in row blocks. Running maxima in the fast
loop would cover both cases, but do not vectorise.

**Gradient by products or by differences.** From d = 8 on w (q - r) is cheaper as w q - w r, two
small matrix products. That loses about eps |q|, and is done only where the loss is below 1e-13 of
the kernel's width (2e-5 in float32). In row blocks a row with fewer than one nonzero weight in
sixteen is computed pair by pair, and a tile without any is skipped.

**Few terms make up a sum in many dimensions.** Exponents out of products are off by some units of
the rows' squares over the bandwidth's. Where that is more than a sum may lose, the terms within a
few nats of the largest are listed and computed by differences; all others are so small that their
error does not matter. A list has room for 64 terms of a row in a block; a row with more is given up
and summed by differences altogether. Where all terms count, the bandwidth is wide, exponents are
small, and products are accurate enough. Totals are in units of a power of two, so that a nearer
point rescales them without rounding: a row may meet nearer points any number of times.

**A cell list with sorted columns.** For a compact kernel in up to three dimensions, cells are a
quarter of the cutoff across, and points within a column of cells are sorted along the axis of the
largest spread: a few neighbouring rows need one contiguous range of every column within the
cutoff, found by bisection. Empty cells take no memory, so distant clusters do no harm. Ranges are
copied side by side, 576 points at a time: loops over ranges of a few dozen points spend most of
their time on ends that do not fill a vector. Each row is summed in one fused loop that compares
labels; a tree per class has wide leaves for rare classes. A pair is visited from both of its rows:
then nothing but the row's own sums is written, and the same loops serve a batch. With 2.8 % of the
pairs within the cutoff (50,000 rows, d = 2) one evaluation takes 0.11 s, by trees 0.40 s.
"""
