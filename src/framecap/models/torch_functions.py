"""Functions of torch that aren't operators: the state of modes, and what drives autograd or random generators."""

from __future__ import annotations

import typing
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from framecap.guards import Call, EqualsGuard

from ..errors import AUTOGRAD, RANDOM_STATE, REQUESTED, SIDE_EFFECT, UNSUPPORTED_VALUE, GraphBreak
from ..values.base import Value
from ..values.constant import UNKNOWN, Const, constant_of, from_real, is_immutable
from .registry import MODELS, models

if TYPE_CHECKING:
    from ..symbolic.tracer import Tracer as Region

STATE_FUNCTIONS = [
    getattr(owner, name)
    for owner, names in (
        (
            torch,
            "get_default_dtype is_inference_mode_enabled is_autocast_enabled get_autocast_dtype is_autocast_cpu_enabled"
            " get_autocast_gpu_dtype get_autocast_cpu_dtype is_autocast_cache_enabled"
            " are_deterministic_algorithms_enabled get_num_threads",
        ),
        (
            torch._C,
            "_get_tracing_state _is_tracing _functorch _has_torch_function_unary_ _cuda_getDeviceCount _is_torch_function_enabled",
        ),
        (torch.cuda, "is_available"),
    )
    for name in names.split()
    if callable(getattr(owner, name, None))
]


@cache
def _question(function: Any, args: tuple[Any, ...]) -> Any:
    return lambda: function(*args)


def ask(tx: Region, function: Any, args: tuple[Any, ...] = ()) -> Value:
    """The answer of a state function, guarded."""
    question = _question(function, args)
    value = question()
    if not is_immutable(value):
        raise GraphBreak(UNSUPPORTED_VALUE, f"{function.__name__}() returns an object of type {type(value).__name__}")
    tx.guard(EqualsGuard(Call(question, None), value, where=tx.where))
    return from_real(value)


def _state(function: Any) -> None:
    @models(function)
    def model(tx: Region, args: Any, kwargs: Any) -> Value:
        reals = tuple(constant_of(tx, a) for a in args)
        if kwargs or any(r is UNKNOWN for r in reals):
            raise GraphBreak(UNSUPPORTED_VALUE, f"{function.__name__}() with these arguments")
        return ask(tx, function, reals)


for _function in dict.fromkeys(STATE_FUNCTIONS):
    _state(_function)


@models(torch.is_grad_enabled)
def _is_grad_enabled(tx: Region, args: Any, kwargs: Any) -> Value:
    if tx.grad_mode is not None:
        return Const(tx.grad_mode)
    if tx.switches:
        raise GraphBreak(AUTOGRAD, "the grad mode is read after it was restored")
    return ask(tx, torch.is_grad_enabled)


@models(torch._C._set_grad_enabled)
def _set_grad_enabled(tx: Region, args: Any, kwargs: Any) -> Value:
    raise GraphBreak(AUTOGRAD, "the grad mode is switched")


def _no_override(function: Any) -> None:
    @models(function)
    def model(tx: Region, args: Any, kwargs: Any) -> Value:
        # Tensors with a __torch_function__ of their own never get here: they break when they are read.
        return Const(False)


for _name in ("_has_torch_function", "_has_torch_function_unary", "_has_torch_function_variadic"):
    if callable(getattr(torch._C, _name, None)):
        _no_override(getattr(torch._C, _name))
for _name in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
    if getattr(torch.overrides, _name) not in MODELS:
        _no_override(getattr(torch.overrides, _name))


@models(torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward)
def _autograd(tx: Region, args: Any, kwargs: Any) -> Value:
    raise GraphBreak(AUTOGRAD, "gradients are computed")


@models(torch.manual_seed, torch.seed, torch.initial_seed, torch.get_rng_state, torch.set_rng_state)
def _seed(tx: Region, args: Any, kwargs: Any) -> Value:
    raise GraphBreak(RANDOM_STATE)


@models(torch.set_default_dtype, torch.set_default_device, torch.set_num_threads, torch.save, torch.load, torch.compile)
def _global(tx: Region, args: Any, kwargs: Any) -> Value:
    raise GraphBreak(SIDE_EFFECT)


@models(nn.Module.__setattr__)
def _module_setattr(tx: Region, args: Any, kwargs: Any) -> Value:
    owner, name, value = args
    from ..values.module import ModuleValue

    if not isinstance(owner, ModuleValue):
        raise GraphBreak(UNSUPPORTED_VALUE, "nn.Module.__setattr__ of something else")
    owner.module_setattr(tx, constant_of(tx, name), value)
    return Const(None)


@models(nn.Module.__getattr__)
def _module_getattr(tx: Region, args: Any, kwargs: Any) -> Value:
    from ..values.module import ModuleValue

    owner, name = args
    if not isinstance(owner, ModuleValue):
        raise GraphBreak(UNSUPPORTED_VALUE, "nn.Module.__getattr__ of something else")
    return owner.registered(tx, constant_of(tx, name))


@models(typing.cast)
def _cast(tx: Region, args: Any, kwargs: Any) -> Value:
    result: Value = args[1]
    return result


def requested_break(tx: Region, args: Any, kwargs: Any) -> Value:
    """The model of framecap.graph_break, registered by the API."""
    message = constant_of(tx, args[0]) if args else ""
    raise GraphBreak(REQUESTED, str(message) if message is not UNKNOWN else "")
