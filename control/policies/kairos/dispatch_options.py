"""The options of policies that dispatch queries to devices one by one."""

from control.policies.option_fields import Option, OptionType

SIMULATE = "simulate"  # of ``PICK``
MARGINAL = "marginal"  # of ``PRICES``
SERVE = "serve"  # of ``LATE``

URGENCY = Option(
    name="urgency",
    type=OptionType.AMOUNT,
    default=1.0,
    meaning="weight of the waiting time relative to the run time",
)
GUARD = Option(
    name="guard",
    type=OptionType.PART,
    default=0.0,
    meaning="share of the SLO kept in reserve, besides the measured hops, in checks of deadlines",
)
CONSIDERED = Option(
    name="considered",
    type=OptionType.WHOLE,
    default=1,
    meaning="number of oldest queries per device in one matching",
)
PRICES = Option(
    name="prices",
    type=OptionType.CHOICE,
    choices=(MARGINAL, "speed"),
    default=MARGINAL,
    meaning="cost of a device second: marginal throughput in the mix, or speed of the device (C_j)",
)
LEAD = Option(
    name="lead",
    type=OptionType.SECONDS_OR_AUTO,
    meaning="send ahead to a device that is free within this time; auto (None): the measured time",
)
LEARN = Option(
    name="learn",
    type=OptionType.SWITCH,
    default=True,
    meaning="learn latencies from completions, not from the profile alone",
)
BOUND = Option(
    name="bound",
    type=OptionType.CHOICE,
    choices=("eq15", "fluid"),
    default="fluid",
    meaning="upper bound on the throughput of a device mix",
)
PICK = Option(
    name="pick",
    type=OptionType.CHOICE,
    choices=("paper", "first", SIMULATE),
    default=SIMULATE,
    meaning="choice among the device mixes with the highest bounds",
)
LATE = Option(
    name="late",
    type=OptionType.CHOICE,
    choices=("drop", SERVE),
    default="drop",
    meaning="treatment of queries that no device can finish in time",
)
THRESHOLD = Option(
    name="threshold",
    type=OptionType.COUNT,
    default=0,
    meaning="query size from which only base devices are used",
)
DISPATCH: tuple[Option, ...] = (
    URGENCY, GUARD, CONSIDERED, PRICES, LEAD, LEARN, BOUND, PICK, LATE, THRESHOLD,
)  # fmt: skip
