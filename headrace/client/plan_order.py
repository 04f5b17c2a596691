"""The order of a pipeline's plans, for readers that outlive a purge of the pipeline."""

from schemas.records import Plan


def supersedes(held: Plan | None, found: Plan) -> bool:
    """Return whether ``found`` takes the place of ``held``.

    The epoch decides, as for every node; a purge of the pipeline restarts the epochs.
    """
    return held is None or found.epoch >= held.epoch or found.issued_s > held.issued_s
