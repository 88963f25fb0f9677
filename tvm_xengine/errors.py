"""Every error this package raises on purpose.

XEngineError
├── UnsupportedModelError    a model file cannot be read, or is outside what we train
│   ├── MissingGradientError   ops of the model have no gradient
│   └── NoInt8LayerError       no frozen layer can be int8
├── UnsupportedModuleError   an IRModule is outside what we can schedule
├── InvalidStateError        a state dict or checkpoint does not fit the model
├── InvalidDataError         training data cannot be read, or does not fit the model
├── InvalidScoresError       scores of layers cannot be read, or do not fit the model
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
├── NotFiniteError           a training step made, or a state holds, values that are not finite
├── IrregularFileError       a path names a device, a pipe or a folder, or a file larger than memory
├── StorageError             a device's memory cannot be had, or the file that it is fails
├── RankLostError            another process of the run has ended, or does not answer
│   └── RendezvousError        ... or the processes have not found each other
└── BoardLostError           a board behind RPC does not answer
"""

from __future__ import annotations


class XEngineError(Exception):
    """Base of every error this package raises on purpose."""


class UnsupportedModelError(XEngineError):
    """A model file cannot be read, or is outside what we train.

    The message names the operator, the tensor or the shape. Write the model with a supported
    operator (the tables of operators list them), give it static shapes, or add a converter from a
    package of your own.
    """


class MissingGradientError(UnsupportedModelError):
    """Ops of the model have no gradient.

    Freeze the layers in front of the op, replace the op, or add its gradient from a package of your
    own.
    """


class NoInt8LayerError(UnsupportedModelError):
    """No frozen layer can be int8.

    Only layers before the first trained one can; freeze more, or leave int8 out.
    """


class UnsupportedModuleError(XEngineError):
    """An IRModule is outside what we can schedule.

    A Relax module is a pure function of tensors with static shapes; the message names what is not,
    and the pass of TVM that brings it into this form where there is one.
    """


class InvalidDataError(XEngineError):
    """Training data cannot be read, or does not fit the model.

    Check names, shapes and types of the arrays against those in the message, which are the model's.
    """


class InvalidScoresError(XEngineError):
    """Scores of layers cannot be read, or do not fit the model.

    Correct the name or the number in the message: names are those of layers or parameters of the
    model, scores are finite numbers of at least 0.
    """


class InvalidStateError(XEngineError):
    """A state dict or checkpoint cannot be read, or does not fit the model.

    Take the file of the same model and optimizer, or load only the tensors that both have.
    """


class MissingPackageError(XEngineError):
    """An optional package is needed that is not installed.

    Run the command in the message; `tvm-xengine doctor` lists all extras.
    """


class InvalidPlatformError(XEngineError):
    """A platform file or description is wrong.

    Correct the key or the value that the message names; every key stands on the page of platform
    files.
    """


class InvalidProblemError(XEngineError):
    """A problem, or the JSON it is read from, contradicts itself.

    Correct the op, tensor or device that the message names; the JSON schema of problems checks the
    form.
    """


class InvalidScheduleError(XEngineError):
    """A schedule breaks a rule of its problem.

    Plan again if the model, batch, optimizer or platform has changed; in a schedule edited by hand
    correct the step that the message names.
    """


class BudgetExceededError(InvalidScheduleError):
    """A schedule needs more memory on a device than its budget.

    Give the device the budget in the message, or let the schedule drop or move something before
    that step.
    """


class NoScheduleError(XEngineError):
    """No schedule was found under the budgets.

    Take budgets that the message says work, a longer time limit, a smaller batch, more
    micro-batches, fewer trained layers, or a second device or storage. Infeasible is proven; otherwise a
    longer search may find one.

    Attributes
    ----------
    is_proven
        Whether there is none, whatever the search; else none was found.
    """

    def __init__(self, message: str, *, is_proven: bool = False) -> None:
        super().__init__(message)
        self.is_proven = is_proven


class SolverUnavailableError(XEngineError):
    """The chosen solver cannot run here.

    Install what the message names, or leave out `--solver` and `--backend`: the default needs no
    licence.
    """


class UnsupportedProblemError(XEngineError, ValueError):
    """The chosen solver cannot express the problem or its objective.

    Use `auto`, which takes every problem and objective.
    """


class InvalidDatasetError(XEngineError):
    """Measurements or a cost model file cannot be used.

    Collect or refresh the dataset, or train the cost model again; the message has the command.
    """


class ExtensionError(XEngineError):
    """What another package adds to this one, through an entry point, cannot be loaded.

    Repair or uninstall the package that the message names.
    """


class LibraryError(XEngineError):
    """A vendor's library is missing, or refuses what it is given.

    Install the extra `onednn`, or set `kernels = ["tir"]` for the device.
    """


class CompilationError(XEngineError):
    """A kernel could not be compiled to machine code.

    Check the target's processor and features; report the kernel if the target is right.
    """


class ExportError(XEngineError):
    """A package cannot be written where it was asked for.

    Choose an empty folder, or `--force` where an earlier package lies there.
    """


class MeasurementError(XEngineError):
    """A kernel or link could not be measured.

    Plan with `--costs predicted`, or leave the kernel's library out (`kernels = ["tir"]`).
    """


class InvalidInputError(XEngineError, ValueError):
    """A step is given other inputs than it was made for: names, shapes, types or values.

    Give what the message says the step was compiled for, or compile it for these shapes.
    """


class NotFiniteError(XEngineError):
    """A training step made values that are not finite, or a state that is evaluated holds some.

    The state before that step was restored: lower the learning rate, clip gradients, or check the data;
    `--no-guard` keeps the new state. Of a state to evaluate take one from before the run diverged.

    Attributes
    ----------
    tensor
        Name of the first input, result, output or state tensor that is not finite.
    """

    def __init__(self, message: str, tensor: str) -> None:
        super().__init__(message)
        self.tensor = tensor


class IrregularFileError(XEngineError, OSError):
    """A path names something that cannot be read to its end: a device, a pipe, a folder, too large a file.

    Write what it gives to a file, and name that.
    """

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class StorageError(XEngineError):
    """A device's memory cannot be had, or the file that it is could not be read or written.

    Give a budget that the machine has, or take a smaller batch. Of a file: free the disk or choose
    another `folder` in the platform file, then resume from the last checkpoint.
    """


class RankLostError(XEngineError):
    """Another process of the run has ended, or does not answer.

    Its own message says why. Start the run again, and resume it from its last checkpoint; a platform
    without the devices of that process plans it anew for the others.
    """


class RendezvousError(RankLostError):
    """The processes of a run have not found each other.

    Start all of them, with the same MASTER_ADDR and MASTER_PORT (`torchrun` sets both): the name or address
    of the host of rank 0, which all of them reach, and a port that is free there.
    """


class BoardLostError(XEngineError):
    """A board behind RPC does not answer; no kernel is to blame.

    Restart the server on the board and run the command again; what was measured is kept.
    """
