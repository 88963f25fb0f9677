"""The state of a training step: read, loaded, exchanged with PyTorch, saved to checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tvm_xengine.checks.arguments import checked
from tvm_xengine.errors import InvalidStateError
from tvm_xengine.model.torch_optimizer import OF_LOSS
from tvm_xengine.session.batch_names import array_called
from tvm_xengine.session.installed import InstalledStep
from tvm_xengine.state.handed_over import handed_over, shared
from tvm_xengine.state.model_state import check_fits_module
from tvm_xengine.state.torch_optimizer_state import groups_of_optimizer, load_torch_optimizer

if TYPE_CHECKING:
    import torch


class StatefulStep(InstalledStep):
    """An installed step whose state a user reads and writes."""

    def state_dict(self, *, copy: bool = True) -> dict[str, Any]:
        """All tensors of the model by its own names, as PyTorch's where it was a module.

        Parameters
        ----------
        copy
            False returns views of the arenas: later steps change them, as they change the
            parameters of a module, and each shows the current value between steps. They keep the
            memory alive, also when the step is gone. Read them only; to write, use
            `load_state_dict`. Tensors that the step does not read, such as counters of batches,
            are copies.
        """
        source = self.training.source
        if copy:
            return handed_over(source, self._state.tensors(self.steps_taken))
        return shared(source, self._state.views(self.steps_taken))

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Load the tensors of a state dict.

        Raises
        ------
        InvalidStateError
            If a name is missing or unknown, or a shape differs; nothing is changed then.
        """
        if not isinstance(state, Mapping):
            raise InvalidStateError(
                f"expected a mapping from names to tensors, got {type(state).__name__}"
            )
        arrays = {name: array_called(name, value) for name, value in state.items()}
        self._state.model.write(arrays)
        self._was_written()

    def optimizer_state_dict(self) -> dict[str, Any]:
        """The state of the optimizer as ``torch.optim`` keeps it.

        It holds all parameters in the order of the module, by the groups of the step. For an
        optimizer that holds them in another order use `load_into`.
        """
        return self._state.as_torch_optimizer(self.steps_taken, self._current_rates())

    def load_optimizer_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of the same optimizer in PyTorch, which holds the module's parameters in order."""
        self.steps_taken = self._state.write_torch_optimizer(state)
        self._was_written()

    def load_into(
        self,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        loss: torch.nn.Module | None = None,
    ) -> None:
        """Write the state of the step into a PyTorch module, its optimizer and its loss.

        Parameters
        ----------
        module, optimizer
            Those that the step was made of, or of the same kind.
        loss
            The loss of the step, where it is a module with tensors of its own.

        Raises
        ------
        InvalidStateError
            If the module has other tensors, or the optimizer is another one; nothing is changed then.
        """
        state = self.state_dict()
        check_fits_module(state, module)
        hidden = self._hidden_in(module, loss)
        if optimizer is not None:
            groups = groups_of_optimizer(optimizer, module, loss, self.training)
            made = self._state.as_torch_optimizer(self.steps_taken, self._current_rates(), groups)
            load_torch_optimizer(optimizer, made)
        module.load_state_dict(state)
        values = handed_over(self.training.source, self._state.model.read_hidden())
        for name, tensor in hidden.items():
            tensor.copy_(values[name])

    def load_from(
        self,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        loss: torch.nn.Module | None = None,
    ) -> None:
        """Load the state of a PyTorch module, of its optimizer and of its loss.

        Parameters
        ----------
        module, optimizer, loss
            As in `load_into`.

        Raises
        ------
        InvalidStateError
            If the module or optimizer is another one.
        """
        groups = None
        if optimizer is not None:
            groups = groups_of_optimizer(optimizer, module, loss, self.training)
        self.load_state_dict({**module.state_dict(), **self._hidden_in(module, loss)})
        if optimizer is not None:
            self.steps_taken = self._state.write_torch_optimizer(optimizer.state_dict(), groups)
            self._was_written()

    def _hidden_in(
        self, module: torch.nn.Module, loss: torch.nn.Module | None
    ) -> dict[str, torch.Tensor]:
        """The tensors of a module and of a loss that the module's state dict leaves out."""
        known = dict(module.named_buffers(remove_duplicate=False))
        if loss is not None:
            own = (*loss.named_parameters(), *loss.named_buffers())
            known |= {f"{OF_LOSS}{name}": one.detach() for name, one in own}
        return {name: known[name] for name in self._state.model.hidden if name in known}

    @checked
    def save(self, path: str | Path) -> None:
        """Write the state of model and optimizer to a checkpoint, complete or not at all."""
        from tvm_xengine.state.checkpoint import save_step

        save_step(self, Path(path))

    @checked
    def load(self, path: str | Path) -> None:
        """Continue from a checkpoint, of this plan or of another plan of the same model."""
        from tvm_xengine.state.checkpoint import load_step

        load_step(self, Path(path))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Step holds memory and compiled code, which cannot be copied; take its state with"
            " state_dict() or save(path), and build another step from its plan"
        )
