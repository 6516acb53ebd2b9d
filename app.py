"""SelfSpec Studio's entry point: arguments, the page, launch."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # read when gradio is imported

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
        help="for operators: the only models that may be loaded",
    )
    return parser


def main(argv: list[str] | None = None) -> None:
    """Serve until interrupted."""
    options = arguments().parse_args(argv)
    studio = Studio(
        options.model,
        device=options.device,
        dtype=options.dtype,
        allowed=tuple(options.models) if options.models else None,
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
