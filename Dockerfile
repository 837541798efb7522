FROM python:3.12-slim AS builder
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY gateway gateway
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir /wheels/*.whl

FROM python:3.12-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin gateway
COPY --from=builder /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
EXPOSE 8900 8901
# Asks whether the process lives. Whether an engine serves is /readyz, and no reason to restart this.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["python", "-c", "import urllib.request as r; r.build_opener(r.ProxyHandler({})).open('http://127.0.0.1:8900/healthz', timeout=2)"]
ENTRYPOINT ["prefix-gateway"]
CMD ["serve", "--config", "/etc/prefix-gateway/config.yaml"]
