"""`bench streaming`: what it costs to stream through the server to a client in another process.

The server is the real app in a process of its own; this process is the client, and between
its calls runs the same requests on the core directly. It looks for what is new 20 times a second,
and once more the way that `for item in job` does.
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
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

from gradio_client import Client
from gradio_client.client import Job

from selfspec_core.engine import Engine
from selfspec_core.plan import parse_plan
from selfspec_core.request import Request

from .drafts import skip_of
from .opening import check_counts, open_engine, setting
from .prompts import read_categorised

APP = Path(__file__).resolve().parent.parent / "app.py"
START_SECONDS = 300.0
LOOK_SECONDS = 0.05

Consume = Callable[[Job], Iterator[str]]


def run(options: argparse.Namespace) -> int:
    """Interleave the ways over the prompts; print medians and the shares lost."""
    check_counts(options)
    if options.mode != "auto":
        raise ValueError(f"the server runs in mode auto, got --mode {options.mode}: leave it out")
    read = read_categorised(options.prompts, options.limit, by_category=False)
    port = _free_port()
    arguments = ["--port", str(port)]
    for name in ("model", "device", "dtype"):
        arguments += [f"--{name}", getattr(options, name)]
    server = subprocess.Popen(
        [sys.executable, str(APP), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        engine = open_engine(options)
        requests = [_request(engine, options, each.text) for each in read]
        client = _connected(port, server)
        ways: dict[str, Callable[[Request], float]] = {
            "core": lambda request: _core(engine, request),
            "served": lambda request: _served(client, request, _looking),
            "iterated": lambda request: _served(client, request, _iterating),
        }
        speeds: dict[str, list[float]] = {name: [] for name in ways}
        ways["served"](requests[0])  # waits for the model, and warms up
        for repeat in range(options.repeats):
            for request in requests:
                for name in [*ways][:: 1 if repeat % 2 else -1]:
                    speeds[name].append(ways[name](request))
                row = ", ".join(f"{name} {tps[-1]:.1f}" for name, tps in speeds.items())
                print(f"{row} tokens/s", file=sys.stderr)
    finally:
        server.terminate()
        server.wait(20)
    figures: dict[str, object] = {
        **{f"{name}_tps": statistics.median(tps) for name, tps in speeds.items()},
        "cost": _cost(speeds, "served"),
        "iterated_cost": _cost(speeds, "iterated"),
        "runs": len(speeds["core"]),
        **setting(engine),
    }
    if options.json:
        print(json.dumps(figures))
    else:
        print(
            f"core {figures['core_tps']:.1f} tokens/s, through the server "
            f"{figures['served_tps']:.1f}: streaming costs {figures['cost']:.1%}; "
            f"{figures['iterated_cost']:.1%} to a client that iterates over its job "
            f"(medians of {figures['runs']} interleaved runs)"
        )
    return 0


def _cost(speeds: dict[str, list[float]], name: str) -> float:
    """Share of the core's speed that is lost on this way."""
    pairs = zip(speeds[name], speeds["core"], strict=True)
    return statistics.median(1 - speed / core for speed, core in pairs)


def _request(engine: Engine, options: argparse.Namespace, prompt: str) -> Request:
    """What core and server are asked for; it refuses what can't be."""
    return Request(
        prompt=prompt,
        plan=parse_plan(skip_of(options, engine.n_layers), engine.n_layers),
        k=engine.default_k if options.k is None else options.k,
        max_new_tokens=options.max_new_tokens,
        chat=options.chat,
    )


def _core(engine: Engine, request: Request) -> float:
    begin = time.perf_counter()
    written = engine.generate(request)
    return len(written.tokens) / (time.perf_counter() - begin)


def _served(client: Client, request: Request, consume: Consume) -> float:
    begin = time.perf_counter()
    job = client.submit(
        prompt=request.prompt,
        plan=str(request.plan),
        k=request.k,
        max_new_tokens=request.max_new_tokens,
        chat=request.chat is not False,
        api_name="/generate",
    )
    whole = deque(consume(job), maxlen=1).pop()  # the last item is the whole trace
    seconds = time.perf_counter() - begin
    return len(json.loads(whole.strip().split("\n")[-1])["tokens"]) / seconds


def _looking(job: Job) -> Iterator[str]:
    """The items as they come, looked for every `LOOK_SECONDS`."""
    seen, over = 0, False
    while not over:
        over = bool(futures.wait([job.future], LOOK_SECONDS).done)
        new = job.outputs()[seen:]
        seen += len(new)
        yield from new


def _iterating(job: Job) -> Iterator[str]:
    """The same by the client's own iterator, which looks a thousand times a second."""
    yield from job


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
