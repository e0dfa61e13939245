"""A part of CPython's own tests under the hook; `suite.py` runs more of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("cpython_suite", Path(__file__).with_name("suite.py"))
assert spec is not None and spec.loader is not None
suite = importlib.util.module_from_spec(spec)
spec.loader.exec_module(suite)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", suite.QUICK)
def test_passes_as_without_framecap(name: str) -> None:
    if importlib.util.find_spec(f"test.{name}") is None:
        pytest.skip("this Python comes without its tests")
    hooked = suite.run_one(name, True)
    assert hooked["run"] > 0
    if hooked["failed"]:  # a test may fail on this machine without framecap too
        assert suite.new_failures(name)[2] == []
