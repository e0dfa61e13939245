"""Declares the C extensions; everything else is in pyproject.toml.

FRAMECAP_WERROR=1 compiles with -Wall -Wextra -Werror. FRAMECAP_CFLAGS adds flags at the end.
"""

import os
import shlex
import sysconfig

from setuptools import Extension, setup


def compile_flags() -> list[str]:
    flags = ["-std=c11", "-fvisibility=hidden"]
    if os.environ.get("FRAMECAP_WERROR", "") not in ("", "0"):
        # As a system directory, CPython's own headers are exempt from the warnings asked for here.
        flags += ["-isystem", sysconfig.get_path("include"), "-Wall", "-Wextra", "-Werror"]
    return flags + shlex.split(os.environ.get("FRAMECAP_CFLAGS", ""))


HEADERS = [
    *(f"src/framecap/{name}.h" for name in ("_cpython", "_variant", "_point", "_optimized")),
    "src/guards/_evaluator.h",
]

setup(
    ext_modules=[
        Extension(
            "framecap._hook", ["src/framecap/_hook.c"], depends=HEADERS, extra_compile_args=compile_flags()
        ),
        Extension(
            "framecap.guards._evaluator",
            ["src/guards/_evaluator.c"],
            depends=HEADERS,
            extra_compile_args=compile_flags(),
        ),
    ]
)
