# One image for every role; which one is the first word of the command. Only workers need the
# libraries of models. The other roles do with an image that has none:
#   docker build --build-arg EXTRAS="gateway registry schema" --tag headrace:light .
FROM python:3.11-slim

# LightGBM's wheel uses the system's OpenMP.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libgomp1 \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/headrace
COPY requirements-bootstrap.lock requirements.lock pyproject.toml ./
# Of pyproject.toml's extras; the lock has the hashes of all. Compiled here, since the user of the
# image may not write beside the libraries and would compile them at every start.
ARG EXTRAS="gateway registry schema postcode"
RUN pip install --no-cache-dir --require-hashes -r requirements-bootstrap.lock \
 && uv pip install --system --no-cache --compile-bytecode --require-hashes \
      --constraint requirements.lock --requirement pyproject.toml \
      $(printf -- "--extra %s " $EXTRAS)

COPY README.md LICENSE setup.py ./
COPY schemas schemas
COPY profiles profiles
COPY control control
COPY operators operators
COPY streams streams
COPY headrace headrace
COPY examples examples
RUN uv pip install --system --no-cache --no-deps --build-constraint requirements.lock --editable . \
 && python -m compileall -q .

# Our packages have common names; this puts them before anything installed (docs/decisions/0001).
ENV PYTHONPATH=/opt/headrace PYTHONUNBUFFERED=1

RUN useradd --create-home headrace
USER headrace
ENTRYPOINT ["headrace"]
