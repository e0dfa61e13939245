"""Passes: functions of a graph that say whether they changed it. One file each."""

from .common_subexpr import eliminate_common_subexpressions
from .dead_code import eliminate_dead_code
from .purity import why_impure
from .shapes import TensorMeta, propagate_shapes

__all__ = ["TensorMeta", "eliminate_common_subexpressions", "eliminate_dead_code", "propagate_shapes", "why_impure"]
