"""An nn.Module that runs under optimize and still is the module: same state, same class for isinstance, same pickle."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from .backends import config_for
from .config import Config
from .hook import thread_config

_classes: dict[tuple[type, int], type] = {}


def optimize_module(module: nn.Module, config: Config, options: dict[str, Any]) -> nn.Module:
    """A module of a subclass of ``type(module)`` that shares ``module``'s whole state (one ``__dict__``).

    Calling it calls the original class's ``__call__`` with capture switched on; everything else is inherited.
    """
    cls = type(module)
    made: Any = object.__new__(_subclass(cls))
    object.__setattr__(made, "__dict__", module.__dict__)
    _settings[id(made.__class__)] = (config, options)
    return made


_settings: dict[int, tuple[Config, dict[str, Any]]] = {}


def _subclass(cls: type) -> type:
    """A fresh subclass; one for each optimized module, since the config belongs to the class, not to the shared state."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        with thread_config(_settings[id(type(self))][0]):
            return cls.__call__(self, *args, **kwargs)

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        plain: Any = object.__new__(cls)
        object.__setattr__(plain, "__dict__", self.__dict__)
        return _restore, (plain, _settings[id(type(self))][1])

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        plain: Any = object.__new__(cls)
        object.__setattr__(plain, "__dict__", self.__dict__)
        return _restore(copy.deepcopy(plain, memo), _settings[id(type(self))][1])

    space = {
        "__call__": __call__, "__reduce_ex__": __reduce_ex__, "__deepcopy__": __deepcopy__, "__module__": cls.__module__,
        "__doc__": cls.__doc__, "__qualname__": cls.__qualname__, "__framecap__": True,
    }  # fmt: skip
    return type(cls)(cls.__name__, (cls,), space)


def _restore(module: nn.Module, options: dict[str, Any]) -> nn.Module:
    return optimize_module(module, config_for(**options), options)
