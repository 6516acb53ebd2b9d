"""Compiles `kernels.cpp` for this machine, once, and loads it.

The library is kept in `$SELFSPEC_HOME/native/`, under a name made of all that it depends on: the
source, PyTorch, the compiler and the processor. Two processes that start at once build it once.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path

import torch
from filelock import FileLock

from ..builtin import home

SOURCE = Path(__file__).with_name("kernels.cpp")
COMPILERS = ("c++", "g++", "clang++")
FLAGS = (
    "-O3",
    "-march=native",
    "-std=c++20",
    "-fPIC",
    "-shared",
    "-fopenmp-simd",
    "-fno-math-errno",
    "-fno-trapping-math",
)
_PATIENCE = 300.0  # seconds; it takes about six


class Unavailable(RuntimeError):
    """The library can't be had here; the message says why, and what would change it."""


def load() -> None:
    """Make `torch.ops.selfspec` usable, compiling it if this machine has not yet.

    Raises:
        Unavailable: no compiler, or one that can't build it.
    """
    if is_loaded():  # registering twice would end the process
        return
    path = library()
    if not is_whole(path):
        build(path)
    try:
        torch.ops.load_library(path)
    except OSError as error:
        raise Unavailable(f"the compiled library {path} can't be loaded: {error}") from None


def is_loaded() -> bool:
    """Whether this process has the kernels already."""
    return hasattr(torch.ops.selfspec, "branches")


def is_built() -> bool:
    """Whether `load` would compile nothing.

    Raises:
        Unavailable: no compiler.
    """
    return is_whole(library())


def is_whole(path: Path) -> bool:
    """Whether a library is there as it was written: loading a damaged one ends the process."""
    try:
        return _digest(path) == path.with_suffix(".sha256").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return False


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def library() -> Path:
    """Where the library for this machine is, or will be.

    Raises:
        Unavailable: no compiler.
    """
    facts = (
        SOURCE.read_text(encoding="utf-8"),
        torch.__version__,
        _version(compiler()),
        " ".join(FLAGS),
        _processor(),
    )
    name = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
    return home() / "native" / f"selfspec-{name}.so"


def compiler() -> tuple[str, ...]:
    """The C++ compiler's path and options of its own: `$CXX`, else the first of the usual names.

    Raises:
        Unavailable: there is none.
    """
    wanted = os.environ.get("CXX", "").strip()
    for name, *options in [wanted.split()] if wanted else [[name] for name in COMPILERS]:
        if found := shutil.which(name):
            return (found, *options)
    raise Unavailable(
        f"no C++ compiler ({wanted or ', '.join(COMPILERS)}): `apt-get install g++` gets one"
    )


def build(path: Path) -> None:
    """Compile the library to `path`.

    Raises:
        Unavailable: the compiler failed, and the message has its first complaint; or the library
            can't be kept.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if not is_whole(path):  # else another process was first
                _compile(path)
    except OSError as error:
        raise Unavailable(
            f"kernels can't be kept in {path.parent} ({error.strerror or error}): point "
            "SELFSPEC_HOME to a folder that can be written"
        ) from None


def _compile(path: Path) -> None:
    part = path.with_suffix(f".{os.getpid()}.part")
    root = Path(torch.__file__).parent
    include = root / "include"
    command = [
        *(*compiler(), *FLAGS),
        *(f"-I{include}", f"-I{include / 'torch/csrc/api/include'}"),
        *(str(SOURCE), "-o", str(part)),
        *(f"-L{root / 'lib'}", "-ltorch", "-ltorch_cpu"),
    ]
    try:
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_PATIENCE
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{command[0]} could not compile {SOURCE.name}: {error}") from None
        if result.returncode:
            complaints = [line for line in result.stderr.splitlines() if "error" in line]
            raise Unavailable(
                f"{command[0]} could not compile {SOURCE.name}: "
                f"{(complaints or result.stderr.splitlines() or ['no message'])[0]}"
            )
        digest = _digest(part)
        part.replace(path)
        path.with_suffix(".sha256").write_text(digest, encoding="ascii")
    finally:
        part.unlink(missing_ok=True)


def _version(command: tuple[str, ...]) -> str:
    """What the compiler says it is."""
    try:
        result = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{command[0]} doesn't answer --version: {error}") from None
    return result.stdout


def _processor() -> str:
    """What decides which instructions `-march=native` takes."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(
        dict.fromkeys(
            line for line in lines if line.startswith(("model name", "flags", "Features"))
        )
    )
