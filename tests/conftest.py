"""What all tests share."""

from __future__ import annotations

import os
from functools import cache

# Before torch is imported: threads that spin while another process has the core make a busy
# machine (two browsers, a server and these tests on two cores) many times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:  # two processes of tests on two cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

settings.register_profile("selfspec", deadline=None)  # machines may be busy
settings.load_profile("selfspec")


@pytest.fixture(autouse=True)
def _one_thread():
    """Tiny models are quickest on one thread, and a shared machine is steadiest."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def builtin_engine():
    """dtype → an engine on the built-in model, loaded once."""
    from selfspec_core.engine import Engine
    from selfspec_core.loading import load

    @cache
    def engine(dtype: str = "auto") -> Engine:
        return Engine(load("builtin", device="cpu", dtype=dtype))

    return engine
