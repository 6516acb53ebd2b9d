"""The Gradio page: panels, one file each, over one engine."""
