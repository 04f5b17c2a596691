"""Look up schemas by id, and bound the time spent on ids that the registry cannot serve.

A record names its schema by an id of four bytes. Any producer on the topic can name a new id with
each record, and each request to the registry blocks the reader: without a bound the reader would do
nothing else. The schemas of the topic's own subject are listed, so they are found regardless.

If the registry fails for one id but lists that subject, the fault is the record's; otherwise such a
record would end its reader again and again. A registry that cannot list the subject either is away.
"""

from collections.abc import Callable, Iterable, Mapping

from schemas.codec.values import CodecError
from streams.kafka.kafka_errors import BrokerError

SHARE = 0.05  # largest share of the reader's time for unknown ids
MOST_S = 0.5  # most unused time that is kept for them
LIST_S = 1.0  # interval between two lists of the subject


class SchemaLookups:
    """The texts of schema ids, from a registry.

    ``ask`` returns the text of an id and raises ``LookupError`` if the registry has none.
    ``versions`` returns the versions of the topic's subject, ``version`` the id and the text of
    one. They raise ``BrokerError`` if the registry fails. ``now`` is a clock in seconds.
    """

    def __init__(
        self,
        ask: Callable[[int], str],
        versions: Callable[[], Iterable[int]],
        version: Callable[[int], tuple[int, str]],
        now: Callable[[], float],
    ) -> None:
        self._ask, self._versions, self._version, self._now = ask, versions, version, now
        self._left_s, self._at_s = MOST_S, now()
        self._listed_s = float("-inf")
        self._seen: set[int] = set()  # versions of the subject that were read
        self._texts: dict[int, str] = {}  # texts of these, by id

    def text_of(self, number: int) -> str:
        """Return the schema's text.

        Raise ``LookupError`` if the registry has none, ``CodecError`` if it is not asked or fails
        for this id, and ``BrokerError`` if it is away.
        """
        began_s = self._now()
        self._left_s = min(MOST_S, self._left_s + SHARE * (began_s - self._at_s))
        self._at_s = began_s
        if self._left_s > 0:
            try:
                return self._asked(number)
            except (LookupError, CodecError):
                self._left_s -= self._now() - began_s
                raise
        found = self._listed(began_s).get(number)
        if found is None:
            raise CodecError(
                f"the registry was asked for too many unknown schema ids and not for {number}; "
                "register the schema under the topic's subject, and send the record again"
            )
        return found

    def _asked(self, number: int) -> str:
        """Return the registry's text; retry if it fails for the id but lists the subject."""
        try:
            return self._ask(number)
        except BrokerError:
            self._list()
        if number in self._texts:
            return self._texts[number]
        try:
            return self._ask(number)
        except BrokerError as error:
            raise CodecError(
                f"the registry answers, but not for schema {number}: {error}; mend the registry or "
                "register the schema under the topic's subject, and send the record again"
            ) from error

    def _listed(self, now_s: float) -> Mapping[int, str]:
        """Return the schemas of the subject, by id."""
        if now_s - self._listed_s >= LIST_S:
            self._listed_s = now_s
            self._list()
        return self._texts

    def _list(self) -> None:
        """Read the subject's new versions."""
        for version in set(self._versions()) - self._seen:
            number, text = self._version(version)
            self._texts[number] = text
            self._seen.add(version)
