"""Policy: whose frames are captured. A frame that isn't runs natively; its callees are looked at on their own."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import CodeType

import torch

_PATHS = sysconfig.get_paths()
HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
TORCH = os.path.dirname(torch.__file__) + os.sep
STANDARD = _PATHS["stdlib"] + os.sep
SITE_PACKAGES = tuple({_PATHS["purelib"] + os.sep, _PATHS["platlib"] + os.sep, os.path.dirname(os.path.dirname(TORCH)) + os.sep})
MODULES = os.path.join(TORCH, "nn", "modules") + os.sep
_users_of_torch: set[str] = set()


def is_library(code: CodeType) -> bool:
    """Whether code is Python's, torch's or framecap's own: a break in it is shown where the user's code calls it."""
    filename = code.co_filename
    if filename.startswith(("<frozen", "<framecap", HERE, TORCH)):
        return True
    return filename.startswith(STANDARD) and not filename.startswith(SITE_PACKAGES)


def why_skipped(code: CodeType) -> str | None:
    """Why frames of ``code`` are never captured, or None if they may be."""
    filename = code.co_filename
    if filename.startswith(MODULES) and code.co_name == "forward":
        return None
    if is_library(code):
        return "it is part of Python, torch or framecap"
    if not code.co_flags & 1 and code.co_name != "<module>":
        return "it is the body of a class"
    package = _installed_package(filename)
    if package is not None:
        if code.co_name == "<module>":
            return "it is the import of an installed package"
        if not _uses_torch(package):
            return f"the installed package {package} doesn't use torch"
    return None


def is_installed(filename: object) -> bool:
    """Whether a file belongs to Python or an installed package, rather than to the program."""
    return isinstance(filename, str) and filename.startswith((STANDARD, *SITE_PACKAGES, TORCH))


def _installed_package(filename: str) -> str | None:
    """The top-level name of the installed package that a file belongs to, or None for the user's own files."""
    for folder in SITE_PACKAGES:
        if filename.startswith(folder):
            return filename[len(folder) :].partition(os.sep)[0].removesuffix(".py")
    return None


def _uses_torch(package: str) -> bool:
    """Whether a loaded module of the package has imported torch. A yes is remembered; a no may change."""
    if package in _users_of_torch:
        return True
    prefix = f"{package}."
    for name, module in list(sys.modules.items()):
        if (name == package or name.startswith(prefix)) and getattr(module, "__dict__", {}).get("torch") is torch:
            _users_of_torch.add(package)
            return True
    return False
