"""Ask the words pipeline with headrace.Client: one query, many at once, and from an event loop.

headrace up examples/words/pipeline.yaml
python examples/clients/ask.py localhost:9092 "hello world"
"""

import asyncio
import sys

from headrace import Client


def main(broker, text):
    with Client(broker, "words") as client:
        answer = client.ask(text.encode(), deadline=5.0)
        print(answer.outcome, answer.result)

        futures = [client.submit(word.encode(), deadline=5.0) for word in text.split() * 50]
        print(sum(future.result().outcome == "answered" for future in futures), "answered")

        print(asyncio.run(first_letters(client, text)))


async def first_letters(client, text):
    asked = (client.ask_async(word[:1].encode(), deadline=5.0) for word in text.split())
    return [answer.result for answer in await asyncio.gather(*asked)]


if __name__ == "__main__":
    main(*sys.argv[1:])
