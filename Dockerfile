# The explorer on CPU. PyTorch's index of CPU builds makes the image several GB smaller.
# Build: docker build --build-arg PIP_EXTRA_INDEX_URL=INDEX -t allneg .
# Packaged run: docker run -p 127.0.0.1:8000:8000 allneg
# Own runs, read-only: docker run -p 127.0.0.1:8000:8000 -v "$PWD/runs:/runs:ro" allneg /runs/mine
FROM python:3.13-slim AS build
COPY . /source
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheel /source

FROM python:3.13-slim
ARG PIP_EXTRA_INDEX_URL=
# libgomp1: torch's threads.
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* && useradd --create-home allneg
COPY --from=build /wheel /wheel
RUN pip install --no-cache-dir torch==2.13.0 "$(ls /wheel/*.whl)[serve]"
USER allneg
WORKDIR /home/allneg
EXPOSE 8000
STOPSIGNAL SIGINT
ENTRYPOINT ["allneg", "explore", "--no-browser", "--host", "0.0.0.0", "--allow-host", "localhost"]
CMD ["countries-demo"]
