"""Read a pipeline's labels and the counts of its scorer."""

from headrace.client.newest_records import newest_first
from headrace.client.topic_clients import decoded
from schemas.codec.label_form import label_of
from schemas.codec.values import CodecError
from schemas.effects import ACCURACY, LABELS
from schemas.records import Label, MeasuredAccuracy
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical


def newest_accuracy(kafka: KafkaConfig, pipeline: str) -> MeasuredAccuracy | None:
    """Return the newest record of the pipeline's scorer; None before its first."""
    for stretch in newest_first(kafka, physical(pipeline, ACCURACY), stretch=1):
        for message in stretch:
            found = decoded(message.value() or b"")
            if isinstance(found, MeasuredAccuracy):
                return found
    return None


def labels_since(kafka: KafkaConfig, pipeline: str, since_s: float) -> dict[str, Label]:
    """Return the labels written since ``since_s``, by id; the first label of an id counts."""
    found: dict[str, Label] = {}
    for stretch in newest_first(kafka, physical(pipeline, LABELS)):
        for message in stretch:  # newest first, so an earlier label overwrites a later one
            try:
                label = label_of(message.value() or b"", message.key() or b"")
            except CodecError:
                continue  # the scorer sends it to the dead letters
            found[label.id] = label
        if stretch and stretch[0].timestamp()[1] < since_s * 1e3:
            break
    return found
