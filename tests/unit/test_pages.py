"""Memory in large pages: whole, fresh, apart from each other, and freed."""

from __future__ import annotations

import mmap
import weakref

import pytest
import torch

from selfspec_core.pages import CHUNK, LARGE, LINE, Pages


@pytest.mark.parametrize("large_pages", [True, False])
def test_tensors_are_zeros_that_share_nothing(monkeypatch, large_pages):
    if not large_pages:  # as on systems that have none
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    pages = Pages()
    shapes = [(3, 5), (7,), (2, 3, 4, 5), (CHUNK // 8,), (1, 1), (CHUNK // 2 + 3,)]
    made = [pages.zeros(shape, torch.bfloat16) for shape in shapes]
    for number, tensor in enumerate(made, start=1):
        assert tensor.is_contiguous()
        assert tensor.data_ptr() % LINE == 0
        assert not tensor.any()
        tensor.fill_(number)
    for number, (tensor, shape) in enumerate(zip(made, shapes, strict=True), start=1):
        assert tensor.shape == shape
        assert (tensor == number).all()


def test_a_chunk_begins_with_a_large_page_where_there_are_any():
    page = LARGE if hasattr(mmap, "MADV_HUGEPAGE") else LINE
    assert Pages().zeros((1,), torch.float32).data_ptr() % page == 0


def test_what_nobody_holds_is_freed(monkeypatch):
    rooms = []

    class Room(mmap.mmap):
        def __new__(cls, *arguments, **options):
            made = super().__new__(cls, *arguments, **options)
            rooms.append(weakref.ref(made))
            return made

    monkeypatch.setattr(mmap, "mmap", Room)
    pages = Pages()
    held = pages.zeros((CHUNK // 4,), torch.float32)[5:]  # fills its chunk; a view holds it as well
    pages.zeros((CHUNK // 4,), torch.float32)
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        assert rooms == []
        return
    assert len(rooms) == 2
    assert rooms[0]() is not None
    del held
    assert rooms[0]() is None


def test_no_room_for_nothing_is_no_error():
    assert Pages().zeros((0, 4), torch.float32).shape == (0, 4)
