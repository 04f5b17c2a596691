"""The options of policies that dispatch queries to devices one by one."""

from control.policies.option_fields import Option, OptionType

SIMULATE = "simulate"  # of ``PICK``
MARGINAL = "marginal"  # of ``PRICES``
SERVE = "serve"  # of ``LATE``

URGENCY = Option(
    name="urgency",
    type=OptionType.AMOUNT,
    default=1.0,
    meaning="weight of the time waited against the time to run",
)
GUARD = Option(
    name="guard",
    type=OptionType.PART,
    default=0.0,
    meaning="part of the SLO kept free, beside the measured hops, when a device is judged in time",
)
CONSIDERED = Option(
    name="considered",
    type=OptionType.WHOLE,
    default=1,
    meaning="oldest queries per device that one matching considers",
)
PRICES = Option(
    name="prices",
    type=OptionType.CHOICE,
    choices=(MARGINAL, "speed"),
    default=MARGINAL,
    meaning="cost of a device's second: its marginal throughput in the mix, or its speed (C_j)",
)
LEAD = Option(
    name="lead",
    type=OptionType.SECONDS_OR_AUTO,
    meaning="send ahead to a device that is free so soon; auto (None): as measured",
)
LEARN = Option(
    name="learn",
    type=OptionType.SWITCH,
    default=True,
    meaning="latencies come from completions, not from the profile alone",
)
BOUND = Option(
    name="bound",
    type=OptionType.CHOICE,
    choices=("eq15", "fluid"),
    default="fluid",
    meaning="upper bound of the throughput of a mix of devices",
)
PICK = Option(
    name="pick",
    type=OptionType.CHOICE,
    choices=("paper", "first", SIMULATE),
    default=SIMULATE,
    meaning="how one of the mixes with the highest bounds is chosen",
)
LATE = Option(
    name="late",
    type=OptionType.CHOICE,
    choices=("drop", SERVE),
    default="drop",
    meaning="what happens to queries that no device can finish in time",
)
THRESHOLD = Option(
    name="threshold",
    type=OptionType.COUNT,
    default=0,
    meaning="size from which queries go to base devices only",
)
DISPATCH: tuple[Option, ...] = (
    URGENCY, GUARD, CONSIDERED, PRICES, LEAD, LEARN, BOUND, PICK, LATE, THRESHOLD,
)  # fmt: skip
