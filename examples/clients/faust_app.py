"""Ask the words pipeline from a Faust app: an agent on the results topic, a timer that asks.

headrace up examples/words/pipeline.yaml
python examples/clients/faust_app.py localhost:9092 "hello world"
"""

import asyncio
import json
import sys
import tempfile
import uuid

import faust

broker, text = sys.argv[1:]
query = uuid.uuid4().hex
answered = asyncio.Event()

# The app's id is also its consumer group: with one of its own it sees every answer, from the
# oldest that is kept on, so that none is missed while it starts. Faust's web server would listen on
# every address.
app = faust.App(
    f"words-client-{query}",
    broker=f"kafka://{broker}",
    datadir=tempfile.mkdtemp(),
    web_enabled=False,
    topic_disable_leader=True,
    consumer_auto_offset_reset="earliest",
)
queries = app.topic("words.queries", value_serializer="raw", internal=False)
results = app.topic("words.results", value_serializer="raw")


@app.agent(results)
async def answers(stream):
    """Print our answer."""
    async for event in stream.events():
        if event.message.key == query.encode():
            answer = json.loads(event.value)
            print(answer["outcome"], answer["result"], flush=True)
            answered.set()


@app.task
async def ask():
    """One query, once the app has started."""
    await queries.send(value=text.encode(), headers={"headrace-id": query.encode()})


async def main():
    async with app:
        await asyncio.wait_for(answered.wait(), 60)


if __name__ == "__main__":
    asyncio.run(main())
