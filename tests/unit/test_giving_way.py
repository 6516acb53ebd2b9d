"""Work that gives way to what people look at."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from ui.giving_way import NICENESS, give_way

LINUX = sys.platform.startswith("linux")  # elsewhere threads have no priorities of their own


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) if LINUX else 0


def test_work_and_the_threads_it_starts_give_way_and_nobody_else_does():
    found = []
    before = niceness()

    def work() -> str:
        thread = threading.Thread(target=lambda: found.append(niceness()))
        thread.start()
        thread.join()
        found.append(niceness())
        return "done"

    assert give_way(work) == "done"
    assert found == [max(before, NICENESS) if LINUX else 0] * 2
    assert niceness() == before


def test_what_it_raises_is_raised_and_threads_take_turns_as_before():
    usual = sys.getswitchinterval()
    assert give_way(sys.getswitchinterval) < usual
    with pytest.raises(ZeroDivisionError):
        give_way(lambda: 1 / 0)
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_where_threads_have_no_priorities_it_is_done_all_the_same(monkeypatch):
    monkeypatch.delattr(os, "setpriority", raising=False)
    assert give_way(lambda: 3) == 3
