"""Which device and which number format a name means on this machine."""

from __future__ import annotations

import torch

from .builtin import LoadError

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def pick_device(device: str) -> torch.device:
    """The device that a name means on this machine.

    Raises:
        LoadError: unknown, or not there.
    """
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if device == "auto":
        return torch.device(gpus[0] if gpus else "cpu")
    if device == "cuda" and gpus:
        return torch.device("cuda", torch.cuda.current_device())
    if device not in ("cpu", *gpus):
        choices = ", ".join(["auto", "cpu", *gpus])
        raise LoadError(f"device {device!r} isn't available here: choose one of {choices}")
    return torch.device(device)


def pick_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The number format that a name means on a device.

    Raises:
        LoadError: unknown.
    """
    if dtype == "auto":
        return torch.bfloat16 if computes_bfloat16(device) else torch.float32
    if dtype not in DTYPES:
        raise LoadError(f"dtype {dtype!r} is unknown: choose one of auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]


def computes_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for bfloat16, so that it needs no emulation."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def dtype_name(dtype: torch.dtype) -> str:
    """The format's name as it is given to `pick_dtype`."""
    return str(dtype).removeprefix("torch.")
