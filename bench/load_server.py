"""The server under load: the real app in a process of its own, or one that is there already."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import httpx
import psutil

from .streaming import APP, START_SECONDS, _free_port

MB = 1e6


class Server:
    """Starts the app and watches its memory; a server that is there already is left alone.

    Args:
        arguments: of `app.py`.
        url: of a server that is there; None starts one.
        log: where its output goes; None drops it.
    """

    def __init__(
        self, arguments: Sequence[str], *, url: str | None = None, log: Path | None = None
    ) -> None:
        self._arguments, self._given, self._log = list(arguments), url, log
        self.url = url or ""
        self.samples: list[tuple[float, float]] = []
        """(seconds since the start, resident MB of 10⁶ bytes); empty for a given server."""
        self._process: psutil.Popen | None = None
        self._over = threading.Event()
        self._began = time.monotonic()

    def __enter__(self) -> Server:
        if self._given is None:
            port = _free_port()
            self.url = f"http://127.0.0.1:{port}"
            output = subprocess.DEVNULL if self._log is None else self._log.open("wb")
            self._process = psutil.Popen(
                [sys.executable, str(APP), "--port", str(port), *self._arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            threading.Thread(target=self._watch, daemon=True).start()
        try:
            self._wait_until_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended by itself
                self._process.terminate()
                try:
                    self._process.wait(20)
                except psutil.TimeoutExpired:
                    self._process.kill()

    def memory(self) -> float | None:
        """Resident MB now; None for a given server."""
        return None if self._process is None else self._process.memory_info().rss / MB

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            try:
                memory = self.memory()
            except psutil.Error:
                return
            if memory is not None:
                self.samples.append((time.monotonic() - self._began, memory))

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        told = "it never answered"
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                raise ValueError("the app ended by itself: run it alone to see why")
            try:
                answer = httpx.get(f"{self.url}/health", timeout=10)
                told = answer.text
                if answer.status_code == 200:
                    return
                if answer.json().get("status") == "failed":
                    break
            except (httpx.HTTPError, ValueError):
                pass
            time.sleep(0.25)
        raise ValueError(f"the server at {self.url} isn't ready: {told}")
