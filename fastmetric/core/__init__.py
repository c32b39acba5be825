"""Compiled loops on plain arrays: what is computed from one block of numbers.

The core takes arrays and returns arrays. It imports NumPy, Numba and `_jit`, never SciPy or
scikit-learn, and contains no estimators, no threads and no random numbers. A function works on one
block of pairs or one group of queries; `learn` makes the blocks, runs them by `engine` and adds up
the results.

Files:

* `kernels`: what is the value of a kernel at s, and its slope, by integer code?
* `shifted_sums`: how are sums kept whose terms span hundreds of nats?
* `error_bounds`: how large is each term of a certified error, and why?

Folders, from the innermost loop outwards:

* `vector`: how are exp and blocks of distances computed in vector registers?
* `far_field`: what does a node of points contribute far away, as an expansion?
* `tree`: how are points ordered into boxes, and which are nearest?
* `pairs`: what are the sums and gradients over pairs that are all computed?
* `walk`: what are the sums over trees, with a certified error?
* `lattice`: what are sums of Gaussians in a few dimensions, in time linear in the points?
* `gaussians`: what are the sums of Gaussians that differ in shape?

Decisions
---------
**Kernels by integer code.** A compiled function passed as an argument would miss Numba's disk
cache in every new process. LLVM moves a choice of two kernels, which is what NCA has, out of the
loops; a choice of seven it would not, so the walks apply a kernel to a whole tile at a time.

**Flags.** `_jit.jit` lets LLVM reassociate sums (`contract`, `nsz`, `arcp`, `reassoc`), which
vectorising a sum requires. `_jit.jit_in_order` allows `contract` only: `exp` needs it, because
`reassoc` would delete the rounding trick, and so does every decision about an error. Neither
assumes that NaN and infinity do not occur (`nnan`, `ninf`): an infinite distance marks a pair that
does not count.

**Every function is inlined into its callers.** A call that passes a tuple of arrays pushes all
pointers, shapes and strides on the stack, about a hundred numbers for a tree and its expansions:
ten neighbours of 200,000 points take 0.27 s with calls and 0.14 s without. Inlining also makes the
bits equal on a cold and on a warm cache: a function that has just been compiled exists twice in
the process, by itself and inside its caller, each optimised separately, and where sums may be
reassociated the two differ in the last bits. Compiling takes a tenth longer.

**Arrays without reference counts.** Numba counts references by an atomic operation whenever an
array is sliced or taken out of a tuple: a quarter of the time of a walk, and two threads write to
the same counters. `_jit.uncounted` strips the owner from arrays at the entry of a compiled
function, whose caller holds them.

**float32.** float32 rows are computed in float32 in the pair loops. Sums within a tile are
float32, at most 576 terms long; everything beyond a tile is added in float64.

**Cache.** Functions are compiled at their first call and cached on disk, by `_code_cache`; nothing
is compiled at import. An edit anywhere in the core compiles all of it anew.
"""
