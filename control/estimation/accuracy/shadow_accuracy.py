"""Accuracy without labels, from the agreement of answers with those of the most accurate path.

With the agreement g (share of equal parts) and the accuracy a of the reference path, the estimate
is

    accuracy = g a

An answer that differs from the reference counts as wrong; one that equals it is right with
probability a. Two equal answers are both right or both wrong; of two different answers at most one
is right. However the errors are correlated, the accuracy therefore lies between

    g + a - 1   and   1 - |g - a|

at most 1 - a from g; more shadows do not reduce this bias. The interval of g a is that of g, times
a. The estimate assumes that the reference is as accurate as in its profile.
"""

from dataclasses import dataclass

from control.estimation.accuracy.accuracy_sums import Z_95, AccuracySums


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowAccuracy:
    """Agreement with a reference path, and the accuracy that follows; all 0 to 1.

    ``low`` and ``high`` are the 95 % interval of the agreement, ``accuracy_low`` and
    ``accuracy_high`` that of the accuracy, ``least`` and ``most`` the bounds of its bias. The
    accuracies are None if the reference's accuracy is unknown.
    """

    agreement: float
    low: float
    high: float
    accuracy: float | None
    accuracy_low: float | None
    accuracy_high: float | None
    least: float | None
    most: float | None


def shadow_accuracy(sums: AccuracySums, reference: float | None) -> ShadowAccuracy | None:
    """Return the estimate, None without a shadow; ``reference`` is the reference's accuracy."""
    agreement = sums.accuracy
    if agreement is None:
        return None
    low, high = sums.interval(Z_95)
    if reference is None:
        return ShadowAccuracy(
            agreement=agreement, low=low, high=high, accuracy=None, accuracy_low=None,
            accuracy_high=None, least=None, most=None,
        )  # fmt: skip
    least, most = bounds(agreement, reference)
    return ShadowAccuracy(
        agreement=agreement, low=low, high=high, accuracy=agreement * reference,
        accuracy_low=low * reference, accuracy_high=high * reference,
        least=least, most=most,
    )  # fmt: skip


def bounds(agreement: float, reference: float) -> tuple[float, float]:
    """Return the least and the greatest accuracy at this agreement with the reference path."""
    return max(0.0, agreement + reference - 1.0), 1.0 - abs(agreement - reference)
