"""A linear layer in eight bits, as `passes.quantize` puts it into graphs."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

LEVELS = 255


class QuantizedLinear(nn.Module):
    """``x @ weight.T + bias`` with eight-bit operands and the result in float32.

    weight: int8 ``[out_features, in_features]``, symmetric, with a scale for each output. Inputs are float tensors
    ``[..., in_features]``, which are rounded to uint8 with one scale and zero point, fixed by calibration; what lies
    outside of the calibrated range is clamped to it. Forward only, on CPU.

    The kernel is oneDNN's, on plain integer tensors, which torch.compile's quantization uses as well; torch's older
    quantized tensors (``torch.quint8``) are deprecated as of torch 2.13.
    """

    weight: torch.Tensor
    weight_scale: torch.Tensor
    bias: torch.Tensor | None
    _packed: Any = None

    def __init__(self, linear: nn.Linear, low: float, high: float) -> None:
        """low, high: the range of inputs, which is widened to hold zero, so that zeros stay exact."""
        super().__init__()
        weight = linear.weight.detach().float()
        scale = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127
        self.register_buffer("weight", torch.round(weight / scale[:, None]).clamp(-127, 127).to(torch.int8))
        self.register_buffer("weight_scale", scale)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float().clone())
        low, high = min(low, 0.0), max(high, 0.0)
        self.scale = (high - low) / LEVELS or 1.0
        self.zero_point = round(-low / self.scale)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.training = linear.training

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.product(self.quantize(x).reshape(-1, self.in_features))
        return result.reshape(*x.shape[:-1], self.out_features).to(x.dtype)

    def quantize(self, x: torch.Tensor) -> torch.Tensor:
        """Inputs as uint8, of the same shape."""
        if x.dtype in (torch.float16, torch.bfloat16):
            x = x.float()
        # Truncation of what isn't negative, with a half added, rounds to the nearest.
        offset = torch.full((), self.zero_point + 0.5)
        return torch.add(offset, x, alpha=1 / self.scale).clamp_(0, LEVELS + 0.5).to(torch.uint8)

    def product(self, quantized: torch.Tensor) -> torch.Tensor:
        """The result in float32, ``[n, out_features]``, for inputs as uint8, ``[n, in_features]``."""
        if torch.compiler.is_compiling():
            return self.plain_product(quantized)
        packed, zeros = self._packed or self._pack()
        result: torch.Tensor = torch.ops.onednn.qlinear_pointwise(
            quantized, self.scale, self.zero_point, packed, self.weight_scale, zeros, self.bias, 1.0, 0, torch.float32, "none",
            [], "",
        )  # fmt: skip
        return result

    def plain_product(self, quantized: torch.Tensor) -> torch.Tensor:
        """The same by operators that any backend of torch.compile can compile: oneDNN's format is opaque to it."""
        sums = torch._int_mm((quantized.to(torch.int16) - 128).to(torch.int8), self.weight.t())
        sums = sums - (self.zero_point - 128) * self.weight.sum(1, dtype=torch.int32)
        result = sums * (self.scale * self.weight_scale)
        return result if self.bias is None else result + self.bias

    def _pack(self) -> Any:
        zeros = torch.zeros(self.out_features, dtype=torch.int32)
        packed = (torch.ops.onednn.qlinear_prepack(self.weight, None), zeros)
        if type(packed[0]) is torch.Tensor:  # not for shapes alone
            self._packed = packed
        return packed

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, scale={self.scale:.4g}, zero_point={self.zero_point}"

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._packed = None
        super()._load_from_state_dict(*args, **kwargs)

    def _apply(self, function: Any, recurse: bool = True) -> Any:
        """Stays as it is: on the CPU, where the kernel is, with integers and float32 scales."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedLinear:
        made = memo[id(self)] = self.__new__(type(self))
        made.__setstate__({**self.__dict__, "_buffers": {k: v if v is None else v.clone() for k, v in self._buffers.items()}})
        made._packed = None
        return made

    def __getstate__(self) -> dict[str, Any]:
        # The packed weight is this machine's.
        return {**self.__dict__, "_packed": None}


class Observer(nn.Module):
    """Gives back what it is given, and remembers the least and the greatest value. Puts nothing into a state dict."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = float("inf"), float("-inf")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.numel():
            low, high = map(float, torch.aminmax(x.detach()))
            if math.isnan(low):  # `convert_to_int8` refuses it
                self.low = self.high = math.nan
            else:
                self.low, self.high = min(self.low, low), max(self.high, high)
        return x
