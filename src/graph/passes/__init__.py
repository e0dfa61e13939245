"""Passes: functions of a graph that say whether they changed it. One file each."""

from .common_subexpr import eliminate_common_subexpressions
from .costs import Cost, CostReport, estimate_costs
from .dead_code import eliminate_dead_code
from .fuse_conv_bn import FusionReport, fuse_conv_bn
from .purity import why_impure
from .shapes import TensorMeta, propagate_shapes

__all__ = [
    "Cost", "CostReport", "FusionReport", "TensorMeta", "eliminate_common_subexpressions", "eliminate_dead_code", "estimate_costs",
    "fuse_conv_bn", "propagate_shapes", "why_impure",
]  # fmt: skip
