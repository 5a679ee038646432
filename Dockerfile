# mezzo as a command, without its tests and tools: docker run --rm -v "$PWD:/work" mezzo convert model.onnx out.onnx
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels && useradd --uid 1000 --create-home mezzo
USER mezzo
WORKDIR /work
ENV PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["mezzo"]
CMD ["--help"]
