"""Errors of building and loading a model.

ModelError
    BadReference    a "module:name" that does not resolve
    BadArguments    an operator that does not accept its arguments
    BadOperator     an operator that is no class, lacks ``load`` or ``predict``, or raises
    BadWeights      a weights file that is missing, unsafe or made for another model
    BadDevice       a device that this machine or library does not have
    BadSchema       a schema file of outputs that cannot be used
    MissingExtra    a library of an optional extra that is not installed
"""

from operators.calls.user_frames import OperatorFailed
from schemas.user_errors import HeadraceError


class ModelError(HeadraceError, OperatorFailed):
    """A model cannot be built or loaded; the message is one sentence with the remedy."""


class BadReference(ModelError):
    """A "module:name" does not resolve."""


class BadArguments(ModelError):
    """An operator does not accept its arguments."""


class BadOperator(ModelError):
    """An operator is no class, lacks ``load`` or ``predict``, or raises while it is built."""


class BadWeights(ModelError):
    """A weights file is missing, unsafe or made for another model."""


class BadDevice(ModelError):
    """This machine or library does not have the device."""


class BadSchema(ModelError):
    """A schema file of outputs cannot be read, or is no schema."""


class MissingExtra(ModelError):
    """A library of an optional extra is not installed."""
