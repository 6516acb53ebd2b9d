# syntax=docker/dockerfile:1
# SelfSpec Studio: the page and its endpoints on port 7860. See docs/hosting.md.
FROM python:3.11-slim

# PyTorch's index: for CPUs unless another is named, which spares gigabytes of CUDA libraries.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# With a C++ compiler the engine builds its own kernels for the machine that it runs on, at the
# first start and into /cache; without one it takes the slower way through transformers' modules.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 1000 studio \
    && mkdir -p /app /cache \
    && chown studio:studio /app /cache

WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir "$(grep -E '^torch==' requirements.txt)" --index-url "$TORCH_INDEX" \
    && pip install --no-cache-dir -r requirements.txt

COPY --chown=studio:studio . .

USER studio
ENV HOME=/home/studio \
    SELFSPEC_HOME=/cache/selfspec \
    HF_HOME=/cache/huggingface \
    GRADIO_SERVER_NAME=0.0.0.0 \
    GRADIO_SERVER_PORT=7860 \
    GRADIO_ANALYTICS_ENABLED=False \
    PYTHONUNBUFFERED=1
VOLUME /cache
EXPOSE 7860

# While the model loads the answer is 503; a first start fetches it.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10m --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:7860/health', timeout=4)"]

ENTRYPOINT ["python", "app.py"]
