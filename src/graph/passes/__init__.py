"""Passes: functions of a graph that say whether they changed it. One file each."""

from .dead_code import eliminate_dead_code

__all__ = ["eliminate_dead_code"]
