"""`bench streaming`: what it costs to stream through the server to a client in another process.

The server is the real app in a process of its own; this process is the client, and between
its calls runs the same requests on the core directly.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from gradio_client import Client

from selfspec_core.engine import Engine
from selfspec_core.plan import parse_plan
from selfspec_core.prompts import read_prompts
from selfspec_core.request import Request

from .opening import open_engine, setting

APP = Path(__file__).resolve().parent.parent / "app.py"
START_SECONDS = 300.0


def run(options: argparse.Namespace) -> int:
    """Interleave both ways over the prompts; print medians and the share lost."""
    prompts = read_prompts(options.prompts, options.limit)
    port = _free_port()
    arguments = ["--port", str(port), "--model", options.model, "--dtype", options.dtype]
    server = subprocess.Popen(
        [sys.executable, str(APP), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        engine = open_engine(options)
        client = _connected(port, server)
        k = engine.default_k if options.k is None else options.k
        core: list[float] = []
        served: list[float] = []
        _served(client, options, prompts[0], k)  # waits for the model, and warms up
        for repeat in range(options.repeats):
            for prompt in prompts:
                ways = [
                    (core, lambda prompt=prompt: _core(engine, options, prompt, k)),
                    (served, lambda prompt=prompt: _served(client, options, prompt, k)),
                ]
                for speeds, write in ways if repeat % 2 else ways[::-1]:
                    speeds.append(write())
                print(f"core {core[-1]:.1f}, served {served[-1]:.1f} tokens/s", file=sys.stderr)
    finally:
        server.terminate()
        server.wait(20)
    cost = statistics.median(1 - s / c for s, c in zip(served, core, strict=True))
    figures = {
        "core_tps": statistics.median(core),
        "served_tps": statistics.median(served),
        "cost": cost,
        "runs": len(core),
        **setting(engine),
    }
    if options.json:
        print(json.dumps(figures))
    else:
        print(
            f"core {figures['core_tps']:.1f} tokens/s, through the server "
            f"{figures['served_tps']:.1f}: streaming costs {cost:.1%} (median of {len(core)} pairs)"
        )
    return 0


def _core(engine: Engine, options: argparse.Namespace, prompt: str, k: int) -> float:
    plan = parse_plan(options.skip, engine.n_layers)
    request = Request(prompt=prompt, plan=plan, k=k, max_new_tokens=options.max_new_tokens)
    begin = time.perf_counter()
    written = engine.generate(request)
    return len(written.tokens) / (time.perf_counter() - begin)


def _served(client: Client, options: argparse.Namespace, prompt: str, k: int) -> float:
    begin = time.perf_counter()
    job = client.submit(
        prompt=prompt,
        plan=options.skip,
        k=k,
        max_new_tokens=options.max_new_tokens,
        api_name="/generate",
    )
    whole = deque(job, maxlen=1).pop()  # consumed as it comes; the last item is the whole trace
    seconds = time.perf_counter() - begin
    return len(json.loads(whole.strip().split("\n")[-1])["tokens"]) / seconds


def _connected(port: int, server: subprocess.Popen[bytes]) -> Client:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return Client(f"http://127.0.0.1:{port}", verbose=False)
        except Exception as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise ValueError(f"the app didn't start: {error}") from None
            time.sleep(0.5)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
