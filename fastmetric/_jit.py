"""The only place that names Numba options.

`jit` is for loops whose sums may be reassociated, `jit_in_order` for arithmetic whose order carries
meaning (the rounding trick of exp, decisions about pruning). Neither assumes the absence of NaN or
infinity: those assumptions would delete the checks for them.

Every function is inlined into its callers. A call would push tuples of arrays on the stack, which
takes longer than many a step; and it would be bound to a copy of its own where the function has
just been compiled, but to the caller's copy where that comes from the cache: two compilations,
whose reassociated sums differ in the last bits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils, config
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic

from fastmetric._code_cache import CodeCache
from fastmetric._compile_notice import compile_notice

_REASSOCIATED = {"contract", "nsz", "arcp", "reassoc"}
_IN_ORDER = {"contract"}


class _NoEnvironment:
    """The code generator that Numba asks to set a part's environment, which no code reads."""

    @staticmethod
    def set_env(name: str, env: Any) -> None:
        """Do nothing: there is no executable code to hold the environment."""


class _PartLibrary(JITCodeLibrary):
    """Code that is only inlined into other code, and so is never made executable."""

    codegen = _NoEnvironment()

    def _finalize_final_module(self) -> None:
        """Make the code ready to be linked into that of the callers."""
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: there is no executable code."""
        return 0


class _PartCompiler(Compiler):
    """Compiles a function into a `_PartLibrary`."""

    def __init__(self, typing_context: Any, target: Any, library: Any, *rest: Any) -> None:
        """Take the arguments of Numba's compiler."""
        library = _PartLibrary(target.codegen(), "part")
        super().__init__(typing_context, target, library, *rest)


class _Entry(CPUDispatcher):
    """A function that Python may call. Where compiled code calls it, its `part` is inlined.

    Most functions are called by compiled code only: they are compiled without wrappers for
    Python, executable code and an entry of the cache, a third of the time of a first call.
    """

    part: Any

    def compile(self, sig: Any) -> Any:
        """Compile or load the code for a signature."""
        with compile_notice:
            return super().compile(sig)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the type of a call in compiled code."""
        return self.part.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        """Return what a call in compiled code is bound to."""
        return self.part.get_overload(sig)


def _jit(function: Callable[..., Any], fastmath: set[str]) -> Callable[..., Any]:
    """Return `function` compiled lazily, without the GIL, cached on disk if possible."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    options = {
        "nopython": True,
        "nogil": True,
        "fastmath": fastmath,
        "forceinline": True,
        "boundscheck": None,
    }
    compiled: Any = _Entry(function, targetoptions=options)
    compiled.part = CPUDispatcher(
        function,
        targetoptions=options | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True},
        pipeline_class=_PartCompiler,
    )
    with contextlib.suppress(RuntimeError):  # no writable folder anywhere
        compiled._cache = CodeCache(function)
    return compiled


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop whose floating-point sums may be reordered and vectorised."""
    return _jit(function, _REASSOCIATED)


def jit_in_order(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile arithmetic that must be carried out in the order it is written."""
    return _jit(function, _IN_ORDER)


@intrinsic
def uncounted(typing_context: Any, value: Any) -> Any:
    """Return an array, or a tuple of them, that is not counted.

    Whoever calls this must hold the original as an argument of its own: then it outlives the
    call. Numba counts a reference whenever an array is taken out of a tuple or sliced, by an atomic
    operation. In a walk over a tree that is a quarter of the time on one thread, and more on two,
    which then write to the same counters.
    """

    def without_owner(context: Any, builder: Any, kind: Any, item: Any) -> Any:
        """Return the value with no owner."""
        if isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, item)
            array.meminfo = cgutils.get_null_value(array.meminfo.type)
            return array._getvalue()
        if isinstance(kind, (types.Tuple, types.UniTuple, types.NamedTuple, types.NamedUniTuple)):
            parts = [
                without_owner(context, builder, part, builder.extract_value(item, i))
                for i, part in enumerate(kind.types)
            ]
            return context.make_tuple(builder, kind, parts)
        return item

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        """Emit the copy."""
        return without_owner(context, builder, signature.args[0], args[0])

    return value(value), codegen
