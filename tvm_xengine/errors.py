"""Every error this package raises on purpose.

XEngineError
├── UnsupportedModelError    a model file cannot be read, or is outside what we train
│   └── MissingGradientError   ops of the model have no gradient
├── UnsupportedModuleError   an IRModule is outside what we can schedule
├── InvalidStateError        a state dict or checkpoint does not fit the model
├── InvalidDataError         training data cannot be read, or does not fit the model
├── MissingPackageError      an optional package is needed that is not installed
├── InvalidPlatformError     a platform file or description is wrong
├── InvalidProblemError      a problem (or its JSON) contradicts itself
├── InvalidScheduleError     a schedule breaks a rule of its problem
│   └── BudgetExceededError    ... the rule being a device's memory budget
├── NoScheduleError          no schedule was found under the budgets
├── SolverUnavailableError   the chosen solver cannot run here
├── UnsupportedProblemError  the chosen solver cannot express the problem or objective
├── InvalidDatasetError      measurements or a cost model file cannot be used
├── CompilationError         a kernel could not be compiled to machine code
├── ExtensionError           what another package adds to this one cannot be loaded
├── LibraryError             a vendor's library is missing, or refuses what it is given
├── ExportError              a package cannot be written where it was asked for
├── MeasurementError         a kernel or link could not be measured
├── InvalidInputError        a step is given other inputs than it was made for
├── NotFiniteError           a training step made values that are not finite
└── BoardLostError           a board behind RPC does not answer
"""

from __future__ import annotations


class XEngineError(Exception):
    """Base of every error this package raises on purpose."""


class UnsupportedModelError(XEngineError):
    """A model file cannot be read, or is outside what we train."""


class MissingGradientError(UnsupportedModelError):
    """Ops of the model have no gradient."""


class UnsupportedModuleError(XEngineError):
    """An IRModule is outside what we can schedule."""


class InvalidDataError(XEngineError):
    """Training data cannot be read, or does not fit the model."""


class InvalidStateError(XEngineError):
    """A state dict or checkpoint cannot be read, or does not fit the model."""


class MissingPackageError(XEngineError):
    """An optional package is needed that is not installed."""


class InvalidPlatformError(XEngineError):
    """A platform file or description is wrong."""


class InvalidProblemError(XEngineError):
    """A problem, or the JSON it is read from, contradicts itself."""


class InvalidScheduleError(XEngineError):
    """A schedule breaks a rule of its problem."""


class BudgetExceededError(InvalidScheduleError):
    """A schedule needs more memory on a device than its budget."""


class NoScheduleError(XEngineError):
    """No schedule was found under the budgets."""


class SolverUnavailableError(XEngineError):
    """The chosen solver cannot run here."""


class UnsupportedProblemError(XEngineError, ValueError):
    """The chosen solver cannot express the problem or its objective."""


class InvalidDatasetError(XEngineError):
    """Measurements or a cost model file cannot be used."""


class ExtensionError(XEngineError):
    """What another package adds to this one, through an entry point, cannot be loaded."""


class LibraryError(XEngineError):
    """A vendor's library is missing, or refuses what it is given."""


class CompilationError(XEngineError):
    """A kernel could not be compiled to machine code."""


class ExportError(XEngineError):
    """A package cannot be written where it was asked for."""


class MeasurementError(XEngineError):
    """A kernel or link could not be measured."""


class InvalidInputError(XEngineError, ValueError):
    """A step is given other inputs than it was made for: names, shapes, types or values."""


class NotFiniteError(XEngineError):
    """A training step made values that are not finite; the state before it was restored.

    Attributes
    ----------
    tensor
        Name of the first input, result or state tensor that is not finite.
    """

    def __init__(self, message: str, tensor: str) -> None:
        super().__init__(message)
        self.tensor = tensor


class BoardLostError(XEngineError):
    """A board behind RPC does not answer; no kernel is to blame."""
