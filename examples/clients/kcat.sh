#!/bin/sh
# Ask the words pipeline with kcat (Debian package kcat) and wait for the answer.
#
#   headrace up examples/words/pipeline.yaml
#   sh examples/clients/kcat.sh localhost:9092 "hello world"
set -eu

broker=$1
text=$2
query="kcat-$$-$(date +%s)"
now_ms=$(($(date +%s) * 1000))

# A value is a line of standard input; what else is known of the query stands in headers.
printf '%s\n' "$text" | kcat -b "$broker" -t words.queries -P \
  -H "headrace-id=$query" -H "headrace-deadline-ms=$((now_ms + 5000))"

# The answer's key is the query's id. All results since we asked, until ours is among them. A
# result has the time of its egress' lease, which is up to two seconds older than the answer.
since_ms=$((now_ms - 2000))
for _ in 1 2 3 4 5 6 7 8 9 10; do
  answer=$(kcat -b "$broker" -t words.results -C -o "s@$since_ms" -e -q -f '%k %s\n' |
    grep "^$query " | head -n 1 || true)
  if [ -n "$answer" ]; then
    printf '%s\n' "${answer#"$query" }"
    exit 0
  fi
  sleep 1
done
echo "no answer to $query; is the pipeline up?" >&2
exit 1
