# One image for every role; which one is the first word of the command.
FROM python:3.11-slim

# LightGBM's wheel uses the system's OpenMP.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libgomp1 \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/headrace
COPY requirements-bootstrap.lock requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements-bootstrap.lock \
 && uv pip install --system --no-cache --require-hashes -r requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY profiles profiles
COPY control control
COPY operators operators
COPY streams streams
COPY headrace headrace
COPY examples examples
RUN pip install --no-cache-dir --no-deps --no-build-isolation --editable .

# Our packages have common names; this puts them before anything installed (docs/decisions/0001).
ENV PYTHONPATH=/opt/headrace PYTHONUNBUFFERED=1

RUN useradd --create-home headrace
USER headrace
ENTRYPOINT ["headrace"]
