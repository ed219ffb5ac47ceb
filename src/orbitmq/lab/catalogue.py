"""The experiments by name, in the order in which they run."""

from typing import Final

from orbitmq.lab.experiment import Experiment
from orbitmq.lab.experiments import (
    buffers,
    file_copy,
    flush,
    mapped_memory,
    one_log,
    page_cache,
    sequential,
    storage,
    transfer,
)

_MODULES: Final = (
    page_cache,
    transfer,
    file_copy,
    buffers,
    storage,
    sequential,
    one_log,
    flush,
    mapped_memory,
)
EXPERIMENTS: Final[dict[str, Experiment]] = {
    module.EXPERIMENT.name: module.EXPERIMENT for module in _MODULES
}
