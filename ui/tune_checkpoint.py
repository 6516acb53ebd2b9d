"""The draft of a plan as a checkpoint to download: written, zipped in slices, soon removed."""

from __future__ import annotations

import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfspec_core.plan import SkipPlan

from . import errors
from .settings import Settings
from .tune_feed import Patch, Progress, TuneError
from .tune_files import CHECKPOINT, FILES, plan_file, refusals

if TYPE_CHECKING:
    from selfspec_core.engine import Engine

MAX_BYTES = 4 << 30
MAX_AGE_SECONDS = 3600.0
MAX_ZIPS = 2
"""Zips that wait to be fetched at once; they are as large as models."""
_CHUNK = 8 << 20


def checkpoint_job(engine: Engine, settings: Settings, where: Path) -> Iterator[Any]:
    """Write and zip the draft; the last patch has the zip's `_path`.

    Args:
        where: folder of zips, which the page may serve; old ones in it are removed.

    Raises:
        TuneError: the plan can't be a checkpoint, or it is too large to send.
    """
    from selfspec_core.bounded_json import PlanFileError
    from selfspec_core.draft_checkpoint import write_draft

    file = plan_file(engine, settings)
    if refused := refusals(file.plan)[CHECKPOINT]:
        raise TuneError(refused["key"], **refused["args"])
    assert isinstance(file.plan, SkipPlan)
    if engine.loaded.info.weights_mb * 1e6 > MAX_BYTES:
        raise TuneError("tune.error.too_large", most=MAX_BYTES >> 30)
    folder = Path(tempfile.mkdtemp(dir=_cleaned(where)))
    path, kept = folder / FILES[CHECKPOINT], False
    try:
        yield Progress("tune.step.writing")
        wrote = write_draft(
            folder / "draft", engine.loaded, file.plan, k=file.k or None, confidence=file.confidence
        )
        yield from _zipped(wrote.folder, path)
        shutil.rmtree(wrote.folder, ignore_errors=True)
        kept = True
        yield Patch(
            {
                "_path": str(path),
                "megabytes": round(path.stat().st_size / 1e6),
                "layers": len(wrote.kept),
                "notes": list(wrote.notes),
            }
        )
    except (PlanFileError, OSError) as error:
        raise TuneError("tune.error.text", text=errors.said(error)) from None
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


def _zipped(source: Path, path: Path) -> Iterator[Progress]:
    """Weights hardly shrink, so they are only put together."""
    files = sorted(p for p in source.iterdir() if p.is_file())
    total, done = sum(p.stat().st_size for p in files) or 1, 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for each in files:
            info = zipfile.ZipInfo.from_file(each, f"draft-checkpoint/{each.name}")
            with each.open("rb") as reader, archive.open(info, "w", force_zip64=True) as writer:
                while chunk := reader.read(_CHUNK):
                    writer.write(chunk)
                    done += len(chunk)
                    yield Progress("tune.step.zipping", {}, done / total)


def _cleaned(where: Path) -> Path:
    """The folder of zips, with what is old or too much in it removed."""
    try:
        where.mkdir(parents=True, exist_ok=True)
        found = sorted(where.iterdir(), key=lambda p: p.stat().st_mtime, reverse=True)
        for number, old in enumerate(found, start=1):
            if number >= MAX_ZIPS or time.time() - old.stat().st_mtime > MAX_AGE_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise TuneError("tune.error.storage", text=errors.said(error)) from None
    return where
