"""Checks of a pipeline file's devices: types, sizes, shares, memory, emulation and tiers.

Every check raises ``PipelineError`` with the line of the mistake.
"""

from collections.abc import Mapping

from headrace.config.sections import FileSection, TaskSection, TierSection, TypeSection
from headrace.config.yaml_source import Source, suggestion

_ROUNDING = 1e-9  # of sums of decimal prices


def check_types(file: FileSection, source: Source) -> None:
    """Check that a limit or a budget bounds device types, and that named types exist."""
    types = file.cluster.types or {}
    for key, value in (("budget", file.cluster.budget), ("start", file.cluster.start)):
        if value is not None and not types:
            raise source.error(
                ("cluster", key), "{} is for types of devices, and cluster.types names none"
            )
    check_type_names(file, source)
    check_start(file, source)
    for name, each in types.items():
        check_type(name, each, source)
    if types and file.cluster.budget is None and not file.cluster.start:
        raise source.error(
            ("cluster", "types"),
            "{} can be rented, but nothing says how many; add a line budget: 2.5 ($ per hour)",
        )
    if file.cluster.scale != "nobody" and (not types or file.cluster.budget is None):
        raise source.error(
            ("cluster", "scale"),
            "{} rents devices of cluster.types within cluster.budget; add both, or remove it",
        )
    if file.cluster.scale_command is not None and file.cluster.scale == "nobody":
        raise source.error(
            ("cluster", "scale_command"),
            "{} rents devices, but nobody decides how many; add a line scale: supervisor",
        )
    if types and not file.profiles:
        raise source.error(
            ("cluster", "types"),
            "{} differ by their profiles and the file names none; add profiles: [FILE]",
        )


def check_type(name: str, section: TypeSection, source: Source) -> None:
    """Check that a type has a price or a limit, and that its share can be kept."""
    if section.most is None and section.price == 0:
        raise source.error(
            ("cluster", "types", name),
            f"type {name!r} costs nothing and has no limit; add most or a price",
        )
    if section.share < 1 and section.device != "cpu":
        raise source.error(
            ("cluster", "types", name, "share"),
            f"{{}} of a device {section.device} cannot be kept, only that of a core can; leave it "
            "out, or add device: cpu",
        )


def check_type_names(file: FileSection, source: Source) -> None:
    """Check that the base type and the types of the initial mix exist."""
    types = list(file.cluster.types or {})
    base = file.cluster.base
    if base is not None and base not in types:
        raise source.error(
            ("cluster", "base"), f"{{}} is {base!r}, which is no type; {suggestion(base, types)}"
        )
    for name in file.cluster.start or {}:
        if name not in types:
            raise source.error(
                ("cluster", "start", name), f"{{}} is no type; {suggestion(name, types)}"
            )


def check_start(file: FileSection, source: Source) -> None:
    """Check that the initial mix is within the budget and the limits of its types."""
    types, start, budget = file.cluster.types or {}, file.cluster.start or {}, file.cluster.budget
    for name, count in start.items():
        most = types[name].most
        if most is not None and count > most:
            raise source.error(
                ("cluster", "start", name),
                f"{{}} is {count}, above the type's most of {most}; lower it, or raise most",
            )
    cost = sum(types[name].price * count for name, count in start.items())
    if budget is not None and cost > budget + _ROUNDING:
        raise source.error(
            ("cluster", "start"),
            f"{{}} costs {cost:g} $ per hour, above cluster.budget of {budget:g}; start with "
            "fewer devices, or raise the budget",
        )


def check_sizes(file: FileSection, source: Source) -> None:
    """Check that a distribution of sizes has a size, and that sized queries are not batched."""
    if file.sizes is not None and file.size is None:
        raise source.error(
            ("sizes",), "{} needs to know what a size is; add a line such as: size: {most: 1000}"
        )
    if file.size is None:
        return
    if file.size.batch is not None and file.size.batch > file.size.most:
        raise source.error(
            ("size", "batch"),
            f"{{}} is above size.most of {file.size.most}, up to which variants are profiled; "
            "lower it, or raise most",
        )
    if (file.size.over == "split") != (file.size.split is not None):
        raise source.error(
            ("size", "over"),
            "queries above size.most are split by a function of yours: write both over: split and "
            "split: package.module:function, or neither",
        )
    for task, section in file.tasks.items():
        for name, variant in section.variants.items():
            if variant.batch != 1:
                raise source.error(
                    ("tasks", task, "variants", name, "batch"),
                    f"{{}} is {variant.batch}, but queries have sizes: each is a batch of its "
                    "own; remove it",
                )


def check_sharing(file: FileSection, source: Source) -> None:
    """Check that only workers of ``cluster.devices`` share a device."""
    cluster = file.cluster
    if cluster.tasks_per_device == 1:
        return
    place = ("cluster", "tasks_per_device")
    if cluster.types or cluster.tiers:
        raise source.error(place, "{} divides cluster.devices, not types or tiers; remove it")


def check_shares(file: FileSection, source: Source) -> None:
    """Check that only untied branches have shares and only leaf tasks have weights."""
    for name, task in file.tasks.items():
        if task.share != [0.0, 1.0] and file.branches == "tied":
            raise source.error(
                ("tasks", name, "share"),
                "{} says what share of the queries a task gets, but branches are tied: every "
                "query visits all of them; add a line branches: untied, or remove it",
            )
        if task.weight != 1.0 and task.children:
            raise source.error(
                ("tasks", name, "weight"),
                f"{{}} weighs the accuracy of a leaf task, but {name!r} has children; remove it",
            )


def check_memory(file: FileSection, source: Source) -> None:
    """Check that the devices under ``cluster.memory`` exist."""
    devices = list(file.cluster.devices or {})
    for device in file.cluster.memory:
        if device not in devices:
            raise source.error(
                ("cluster", "memory", device),
                f"{{}}: the cluster has no device {device!r}; {suggestion(device, devices)}",
            )


def check_emulation(file: FileSection, source: Source) -> None:
    """Check that a cluster with emulated devices has a profile."""
    if "emulated" in (file.cluster.devices or {}) and not file.profiles:
        raise source.error(
            ("cluster", "devices", "emulated"),
            "emulated devices wait what a profile says and the file names none; add "
            "profiles: [FILE] or use cpu",
        )


def check_tiers(file: FileSection, source: Source) -> None:
    """Check that the tiers that tasks and links name exist, and that shared tiers have devices."""
    tiers = file.cluster.tiers or {}
    for name, tier in tiers.items():
        if tier.per is None and tier.count is None and tier.most is None:
            raise source.error(
                ("cluster", "tiers", name),
                f"tier {name!r} has no devices; give their count, or write per: session where "
                "every session has its own",
            )
    for task, section in file.tasks.items():
        for at, tier_name in enumerate(section.tiers or ()):
            if tier_name not in tiers:
                place = ("tasks", task, "tiers", at)
                raise source.error(
                    place,
                    f"{{}} is {tier_name!r}, which is no tier; "
                    f"{suggestion(tier_name, list(tiers))}",
                )
        _check_slots(task, section, tiers, source)
    for link in file.cluster.links:
        one, mark, other = link.partition(">")
        if not mark or one not in tiers or other not in tiers or one == other:
            raise source.error(
                ("cluster", "links", link),
                f"{{}} is no link; write TIER>TIER with two of the tiers {', '.join(tiers)}",
            )


def _check_slots(
    task: str, section: TaskSection, tiers: Mapping[str, TierSection], source: Source
) -> None:
    """Check that a task has a slot for each device that may run it."""
    here = sum(tiers[each].devices_here for each in section.tiers or tiers)
    if here > section.slots:
        raise source.error(
            ("tasks", task),
            f"the tiers have {here} devices for task {task!r}, which has {section.slots} "
            f"slots, one per device; raise tasks.{task}.slots, or lower the tiers' counts",
        )
