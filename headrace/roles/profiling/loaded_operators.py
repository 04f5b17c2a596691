"""The operators of a profiler: loaded by setting, run in the batches of service, timed."""

import contextlib
import gc
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from control.problem.session_space import VARIANT, SessionSpace
from headrace.config.pipeline_file import PipelineFile
from headrace.roles.core_clock import without_core_waits_s
from operators.calls.device_faults import out_of_memory
from operators.models.loading import load_operator
from operators.profiler import in_batches
from schemas.records import Value

LOADED = 64  # operators in memory, or fewer if the device has no room


class Operators:
    """Runs the operators of settings on a device; ``running_since`` is 0.0 between calls of
    ``predict``, ``loading_since`` between loads."""

    def __init__(self, file: PipelineFile, sessions: SessionSpace, device: str) -> None:
        self._file, self._sessions, self._device = file, sessions, device
        self._batches = {task.name: task.variants[0].batch for task in file.pipeline.tasks}
        self._loaded: OrderedDict[str, Any] = OrderedDict()
        self.running_since = self.loading_since = 0.0

    def run(
        self, stage: int, configuration: int, values: Sequence[Value]
    ) -> tuple[list[Any], float]:
        """Return the outputs of a stage and the seconds that they took, in the batches of service:
        those of the task's first variant (``control/policies/compass/session_options.py``)."""
        task = self._sessions.space.stages[stage].name
        operator, most = self._operator(task, configuration), self._batches[task]
        outputs, seconds = self._timed(operator, values, most)
        lacking = [isinstance(each, Exception) and out_of_memory(each) for each in outputs]
        if any(lacking) and len(self._loaded) > 1:
            outputs = []  # the errors, with frames that hold tensors
            self._evict(self._sessions.setting(task, configuration))
            return self._timed(operator, values, most)
        return outputs, seconds

    def _timed(self, operator: Any, values: Sequence[Value], most: int) -> tuple[list[Any], float]:
        def called(batch: list[Value]) -> Sequence[Any]:
            self.running_since = time.monotonic()  # of each call: many may take longer than one may
            return operator.predict(batch)  # type: ignore[no-any-return]

        began_s = without_core_waits_s()
        try:
            outputs = in_batches(called, values, most)
        finally:
            self.running_since = 0.0
        return outputs, without_core_waits_s() - began_s

    def warm(self) -> None:
        """Load an operator of each variant, so that no search waits for libraries and weights.

        A load error is reported by the requests for that operator.
        """
        for setting in one_of_each_variant(self._sessions):
            with contextlib.suppress(Exception, SystemExit):
                self._loaded_operator(setting)

    def _operator(self, task: str, configuration: int) -> Any:
        return self._loaded_operator(self._sessions.setting(task, configuration))

    def _loaded_operator(self, setting: str) -> Any:
        if setting not in self._loaded:
            try:
                operator = self._load(setting)
            except Exception as error:
                if not (self._loaded and out_of_memory(error)):
                    raise
                operator = None
            if operator is None:  # outside of the clause, whose error holds the part that fitted
                self._evict()
                operator = self._load(setting)
            self._loaded[setting] = operator
            if len(self._loaded) > LOADED:
                self._loaded.popitem(last=False)
        self._loaded.move_to_end(setting)
        return self._loaded[setting]

    def _load(self, setting: str) -> Any:
        operator: Any = load_operator(self._sessions.variant(self._file.pipeline, setting))
        self.loading_since = time.monotonic()
        try:
            operator.load(self._device)
        finally:
            self.loading_since = 0.0
        return operator

    def _evict(self, besides: str = "") -> None:
        """Free the memory of all operators but one."""
        for setting in list(self._loaded):
            if setting != besides:
                del self._loaded[setting]
        gc.collect()


def one_of_each_variant(sessions: SessionSpace) -> list[str]:
    """Return a setting of each variant of each task: the first option of every other knob."""
    knobs = sessions.space.knobs
    usual = {f"{knob.stage}.{knob.name}": knob.options[0] for knob in knobs}
    by_task = {knob.stage: knob.options for knob in knobs if knob.name == VARIANT}
    return [
        sessions.setting_of(stage.name, usual | {f"{stage.name}.{VARIANT}": variant})
        for stage in sessions.space.stages
        for variant in by_task.get(stage.name, (sessions.variants.get(stage.name, ""),))
    ]
