"""Look schemas up by id; bound the time that ids take which the registry does not give.

A record names its schema by an id of four bytes. Who may write to a topic can name a new one with
each record, and a request to the registry holds up the reader: without a bound it would do nothing
else. The schemas of the topic's own subject are listed, so such a producer cannot hide them.

An id at which the registry fails, while it lists that subject, is the record's fault, or such a
record would end its reader for ever. A registry that does not list it either is away.
"""

from collections.abc import Callable, Iterable, Mapping

from schemas.codec.values import CodecError
from streams.kafka.kafka_errors import BrokerError

SHARE = 0.05  # of the reader's time goes to unknown ids at most
MOST_S = 0.5  # of unused time is kept for them
LIST_S = 1.0  # between two lists of the subject


class SchemaLookups:
    """The texts of schema ids, from a registry.

    ``ask`` returns the text of an id and raises ``LookupError`` where there is none. ``versions``
    returns the versions of the topic's subject, ``version`` the id and the text of one. They raise
    ``BrokerError`` where the registry fails. ``now`` is a clock in seconds.
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
        self._seen: set[int] = set()  # versions of the subject
        self._texts: dict[int, str] = {}  # of these, by id

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
        """Return the registry's text; ask again where it fails for an id and lists the subject."""
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
        """Read the versions of the subject that are new."""
        for version in set(self._versions()) - self._seen:
            number, text = self._version(version)
            self._texts[number] = text
            self._seen.add(version)
