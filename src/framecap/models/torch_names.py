"""Names of torch's functions and methods, by what calling one means to a graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

FACTORIES: frozenset[Any] = frozenset(
    getattr(torch, name)
    for name in (
        "arange as_strided asarray normal rand_like randint_like randn_like vander empty empty_strided eye full "
        "linspace logspace ones rand randint randn randperm range tensor zeros as_tensor scalar_tensor tril_indices "
        "triu_indices hann_window hamming_window bartlett_window blackman_window kaiser_window complex polar"
    ).split()
    if hasattr(torch, name)
)
"""Functions that make tensors and aren't overridable by __torch_function__: operators all the same."""
DATA_METHODS = frozenset(
    (
        "item tolist numpy equal allclose is_nonzero data_ptr __bool__ __int__ __float__ __index__ __complex__ __len__ "
        "__contains__ __iter__ __array__ __repr__ __str__ __format__ __hash__ __reversed__ is_set_to untyped_storage "
        "storage _storage_offset"
    ).split()
)
"""Give data of a tensor to Python."""
AUTOGRAD_METHODS = frozenset(
    (
        "backward register_hook retain_grad requires_grad_ detach_ register_post_accumulate_grad_hook _backward_hooks"
    ).split()
)
"""Drive or observe autograd."""
NATIVE_METHODS = frozenset(
    (
        "apply_ map_ map2_ set_ resize_ resize_as_ share_memory_ unsqueeze_ squeeze_ t_ transpose_ swapaxes_ swapdims_ "
        "as_strided_ rename_ rename align_to refine_names storage_offset pin_memory is_pinned __deepcopy__ "
        "__reduce_ex__ __reduce__ __setstate__ __dlpack__ __dlpack_device__ to_sparse names_ set_data reinforce resize "
        "unflatten_ index_copy module_load data_ptr_"
    ).split()
)
"""Change or show the tensor object itself, not only its data."""
RANDOM = frozenset(
    (
        "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout rand rand_like "
        "randint randint_like randn randn_like randperm bernoulli bernoulli_ normal normal_ uniform_ random_ "
        "exponential_ geometric_ cauchy_ log_normal_ multinomial poisson binomial rrelu rrelu_ gumbel_softmax "
        "native_dropout scaled_dot_product_attention multi_head_attention_forward fractional_max_pool2d "
        "fractional_max_pool3d kaiming_uniform_ kaiming_normal_ xavier_uniform_ xavier_normal_ trunc_normal_ "
        "orthogonal_ sparse_ uniform rnn_tanh rnn_relu lstm gru"
    ).split()
)
"""Draw random numbers, unless told not to."""
FRESH = frozenset(
    (
        "add sub mul div true_divide pow matmul mm bmm addmm baddbmm linear conv1d conv2d conv3d conv_transpose1d "
        "conv_transpose2d conv_transpose3d layer_norm group_norm embedding cat stack concat zeros zeros_like ones "
        "ones_like empty empty_like full full_like rand rand_like randn randn_like arange linspace eye clone relu gelu "
        "silu tanh sigmoid exp log sqrt rsqrt sin cos softmax log_softmax sum mean var std prod cumsum norm where "
        "tensor max_pool2d avg_pool2d adaptive_avg_pool2d neg abs floor outer einsum masked_fill eq ne lt gt le ge "
        "new_zeros new_ones new_empty new_full new_tensor repeat truediv floordiv mod"
    ).split()
)
"""Always return a tensor that shares memory with no other."""
PAIRS = frozenset(("topk sort kthvalue mode cummax cummin").split())
"""Always return two tensors."""
PAIRS_WITH_DIM = frozenset(("max min median nanmedian").split())
"""Return two tensors if they are given a dimension."""
FRESH_MODULES = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.Linear, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d,
    nn.LayerNorm, nn.GroupNorm, nn.Embedding, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d,
)  # fmt: skip
"""Modules whose results share memory with nothing."""
