"""A command of an installed package, called as its script calls it, in a process that is forked."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points

import dask


def call() -> None:
    """Call the command that the first argument names; Dask reads its settings as it would then."""
    sys.argv = sys.argv[1:]
    if "DASK_CONFIG" in os.environ:  # Dask read what there was when the first process began.
        dask.config.refresh(paths=[os.environ["DASK_CONFIG"]])
    (command,) = entry_points(group="console_scripts", name=sys.argv[0])
    sys.exit(command.load()())
