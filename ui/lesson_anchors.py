"""Parts of the page that a lesson may draw a line around."""

from __future__ import annotations

ANCHORS: dict[str, str] = {
    # Decode
    "prompt": "#prompt",
    "run": "#run",
    "auto": "#auto",
    "preset": "#preset",
    "ratio": "#ratio",
    "k": "#k",
    "temperature": "#temperature",
    "rule": "#rule",
    "seed": "#seed",
    "length": "#length",
    "more": "#more",
    "policy": "#policy",
    "verify": "#verify-from",
    "threshold": "#threshold",
    "confidence": "#confidence",
    "strip": "#layers .ss-strip",
    "plan": "#plan",
    "share": "#share",
    "text": ".ss-stage .ss-text",
    "status": ".ss-stage .ss-status",
    "views": ".ss-stage .ss-segments",
    "rounds": "#ss-panel-rounds",
    "step": "#ss-panel-step",
    "race": "#ss-panel-race",
    "ab": "#ss-panel-ab",
    "files": ".ss-stage .ss-tools",
    "figures": ".ss-stage .ss-figures",
    "tau": ".ss-figure-tau",
    "alpha": ".ss-figure-alpha",
    "speed": ".ss-figure-speed",
    "speedup": ".ss-figure-speedup",
    # Layers
    "layers": "#layers-panel",
    "heatmap": "#layers-panel .lp-main",
    "bars": "#layers-panel .lp-more",
    "compute": "#layers-panel .lp-head button",
    "ranks": "#layers-panel .lp-facts",
    # Tune
    "suggest": "#tune .ss-card:has(#tune-suggest-go)",
    "curves": "#tune .ss-card:has(#tune-curves-go)",
    "search": "#tune .ss-card:has(#tune-search-go)",
    "schedule": "#tune .ss-card:has(#tune-schedule-go)",
    "policies": "#tune .ss-tune-row:last-of-type .ss-tune-stack:first-child .ss-card:last-child",
    "export": "#tune .ss-tune-row:last-of-type .ss-tune-stack:last-child .ss-card:first-child",
    "import": "#tune .ss-card:has(#tune-file)",
    # Compare
    "systems": "#compare-systems",
    "compare": "#compare-go",
    "table": "#compare .ss-compare-scroll",
}
"""What a step may outline: name → where it is on the page."""
