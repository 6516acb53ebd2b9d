"""SelfSpec Studio's entry point: arguments, the page, launch."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # read when gradio is imported
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "64")  # each error has a table made of them

from ui.limits import Limits
from ui.model_picker import LOCAL
from ui.recorded import WELCOME, read_recording
from ui.session import Studio
from ui.studio import build, launch_options


def arguments() -> argparse.ArgumentParser:
    """The command line; everything has a default, so that `python app.py` runs anywhere."""
    parser = argparse.ArgumentParser(
        prog="app.py", description="Self-speculative decoding, live in the browser."
    )
    parser.add_argument(
        "--host", help="address to listen on (default: GRADIO_SERVER_NAME, or 127.0.0.1)"
    )
    parser.add_argument(
        "--port", type=int, help="port (default: GRADIO_SERVER_PORT, or the first free from 7860)"
    )
    parser.add_argument(
        "--model", default="builtin", help="builtin, a hub id, a folder, or a GGUF file"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda[:n]")
    parser.add_argument("--dtype", default="auto", help="auto, bfloat16, float16 or float32")
    parser.add_argument(
        "--models",
        nargs="+",
        metavar="NAME",
        help="for operators: the only models that may be loaded; people choose among them on the "
        "page (the model is everybody's)",
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for operators: a limit, over its SELFSPEC_NAME in the environment; repeatable "
        "(docs/hosting.md has them all)",
    )
    parser.add_argument(
        "--fixed-model",
        action="store_true",
        help="nobody changes the model from the page, which without this and --models is possible "
        "where the server listens to this computer only",
    )
    return parser


def main(argv: list[str] | None = None) -> None:
    """Serve until interrupted."""
    parser = arguments()
    options = parser.parse_args(argv)
    try:
        limits = Limits.read(os.environ, options.limit)
    except ValueError as error:
        parser.error(str(error))
    host = options.host or os.environ.get("GRADIO_SERVER_NAME") or "127.0.0.1"
    allowed = tuple(options.models or limits.models) or None
    studio = Studio(
        options.model,
        device=options.device,
        dtype=options.dtype,
        allowed=allowed,
        limits=limits,
        switchable=not options.fixed_model and (allowed is not None or host in LOCAL),
        recording=read_recording() if WELCOME.exists() else None,
    )
    studio.start_loading()
    try:
        build(studio).launch(
            server_name=options.host, server_port=options.port, **launch_options(studio)
        )
    finally:
        studio.close()


if __name__ == "__main__":
    main()
