"""What can be wrong with a model before it answers anything.

ModelError
    BadReference    a "module:name" that leads nowhere
    BadArguments    an operator that cannot be made from the arguments given
    BadOperator     a class that lacks ``load`` or ``predict``
    BadWeights      a file of weights that is missing, unsafe or made for another model
    BadDevice       a device that this machine or library does not have
    MissingExtra    a library that an optional extra of headrace brings
"""

from operators.operator_error import OperatorFailed
from schemas.errors import HeadraceError


class ModelError(HeadraceError, OperatorFailed):
    """A model cannot be made or loaded; the message is one sentence with the mend."""


class BadReference(ModelError):
    """A "module:name" that leads nowhere."""


class BadArguments(ModelError):
    """An operator that cannot be made from the arguments given."""


class BadOperator(ModelError):
    """A class that lacks ``load`` or ``predict``."""


class BadWeights(ModelError):
    """A file of weights that is missing, unsafe or made for another model."""


class BadDevice(ModelError):
    """A device that this machine or library does not have."""


class MissingExtra(ModelError):
    """A library that an optional extra of headrace brings."""
