"""Passes: functions of a graph that say whether they changed it. One file each."""

from .common_subexpr import eliminate_common_subexpressions, reach
from .costs import Cost, CostReport, estimate_costs
from .dead_code import eliminate_dead_code
from .fold_constants import fold_constants
from .fuse_conv_bn import FusionReport, fuse_conv_bn
from .memory import Lifetime, MemoryReport, estimate_memory
from .normalize import normalize_calls
from .purity import why_impure
from .quantize import calibrate, convert_to_int8, insert_observers
from .runner import PassReport, run_passes
from .shapes import TensorMeta, propagate_shapes

__all__ = [
    "Cost", "CostReport", "FusionReport", "Lifetime", "MemoryReport", "PassReport", "TensorMeta", "calibrate",
    "convert_to_int8", "eliminate_common_subexpressions", "eliminate_dead_code", "estimate_costs", "estimate_memory",
    "fold_constants", "fuse_conv_bn", "insert_observers", "normalize_calls", "propagate_shapes", "reach", "run_passes",
    "why_impure",
]  # fmt: skip
