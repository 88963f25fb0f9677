"""Rows that the published stage models share: stages, checkpoints and the memory recurrence.

Stage t ends with the first run of op t. With ``compute`` (R), ``keep`` (S) and ``free`` (FREE)
of Checkmate (Jain et al., MLSys 2020), for every device d:

    sum_d compute[d,t,t] = 1
    keep[d,t+1,i] <= keep[d,t,i] + compute[d,t,i]
    used[d,t,0] = sum_i size_i keep[d,t,i] + size_0 compute[d,t,0]
    used[d,t,k+1] = used[d,t,k] + size_{k+1} compute[d,t,k+1] - sum_{u read or made by k} size_u free[d,t,u,k]
    used[d,t,k] + workspace_k compute[d,t,k] <= budget_d
    free[d,t,u,k] = compute[d,t,k] and no later reader in stage t and not keep[d,t+1,u]

The last line is linearised with  hazards = (1 - compute[d,t,k]) + keep[d,t+1,u] +
sum_{readers j > k} compute[.,t,j]:  1 - free <= hazards,  max * (1 - free) >= hazards.
Readers on every device count, and nothing is freed that is not there; the workspace is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.program import Look, ProgramBuilder, refuse_too_large
from tvm_xengine.solvers.published.bundles import Bundles

_MOST_CELLS = 4_000_000
"""Devices by stages by ops; of more no program is written. One of 240,000 (ResNet-50 on a device) takes
0.3 GB, and the backend's process has it once more, so this many take some 10 GB."""

Grid = NDArray[np.int64]
Terms = list[tuple[int, float]]


@dataclass
class StageDraft:
    """Columns of a stage model while rows are being written; -1 marks one that is absent.

    Attributes
    ----------
    compute
        Shape (D, n, n): device, stage, op.
    keep
        Shape (D, n + 1, n).
    """

    bundles: Bundles
    builder: ProgramBuilder
    compute: Grid
    keep: Grid
    may_appear: dict[tuple[int, int, int], Terms] = field(default_factory=dict)
    """More ways for keep[d,t+1,i] to hold, by (d, t, i)."""


def draft_stages(bundles: Bundles, look: Look) -> StageDraft:
    """The columns compute and keep, with the rows of stages and costs of runs.

    Raises
    ------
    UnsupportedProblemError
        If the program would not fit into memory.
    """
    builder = ProgramBuilder(look)
    n, devices = bundles.op_count, len(bundles.devices)
    refuse_too_large(devices * n * n, n, _MOST_CELLS)
    stage = np.arange(n + 1)[:, None]
    op = np.arange(n)[None]
    runs = (op <= stage[:n]) & ((op == stage[:n]) | (stage[:n] <= np.array(bundles.last_run)))
    runs = runs[None] & np.isfinite(bundles.compute_value).T[:, None, :]
    compute = builder.grid(runs, is_integer=True)
    keep = builder.grid(np.repeat((op < stage)[None], devices, axis=0), is_integer=True)
    draft = StageDraft(bundles, builder, compute, keep)
    for t in range(n):
        terms = [(c, 1.0) for c in compute[:, t, t].tolist() if c >= 0]
        builder.row(terms, lower=1.0, upper=1.0)
    for d in range(devices):
        stages, ops = np.nonzero(compute[d] >= 0)
        builder.minimise(compute[d, stages, ops], bundles.compute_value[ops, d])
    return draft


def there(draft: StageDraft, d: int, t: int, i: int) -> Terms:
    """Terms of keep + compute: the results of op i are on device d in stage t."""
    columns = (int(draft.keep[d, t, i]), int(draft.compute[d, t, i]))
    return [(column, 1.0) for column in columns if column >= 0]


def keep_only_what_was_there(draft: StageDraft) -> None:
    """keep[d,t+1,i] <= keep[d,t,i] + compute[d,t,i] (+ what else brings it)"""
    for d, t in np.ndindex(draft.keep.shape[:2]):
        for i in np.flatnonzero(draft.keep[d, t] >= 0).tolist():
            sources = there(draft, d, t - 1, i) + draft.may_appear.get((d, t - 1, i), [])
            terms = [(int(draft.keep[d, t, i]), 1.0), *((c, -v) for c, v in sources)]
            draft.builder.row(terms, upper=0.0)


def keep_results_to_the_end(draft: StageDraft) -> None:
    """sum_d keep[d,n,i] >= 1 for what must be there at the end."""
    n = draft.bundles.op_count
    for i, survives in enumerate(draft.bundles.survives):
        if survives:
            draft.builder.row([(c, 1.0) for c in draft.keep[:, n, i].tolist()], lower=1.0)


def stay_within_budgets(draft: StageDraft) -> None:
    """The memory recurrence with its FREE variables."""
    bundles, builder = draft.bundles, draft.builder
    n = bundles.op_count
    users = [bundles.users(u) for u in range(n)]
    released = [[*bundles.inputs(k), k] for k in range(n)]
    for d in range(len(bundles.devices)):
        for t in range(n):
            used = builder.new_columns(t + 1, upper=float(max(bundles.budget[d], 0.0)))
            if bundles.budget[d] < 0:
                builder.row([(int(used[0]), 1.0)], upper=-1.0)  # the state alone is too large
            for k in range(t + 1):
                compute = int(draft.compute[d, t, k])
                terms: Terms = [(int(used[k]), 1.0)]
                if k == 0:
                    kept = draft.keep[d, t].tolist()
                    terms += [(c, -float(bundles.size[i])) for i, c in enumerate(kept) if c >= 0]
                else:
                    terms.append((int(used[k - 1]), -1.0))
                    for u in released[k - 1]:
                        if bundles.size[u] > 0 and draft.compute[d, t, k - 1] >= 0:
                            freed = _free(draft, d, t, u, k - 1, users[u])
                            terms.append((freed, float(bundles.size[u])))
                if compute >= 0:
                    terms.append((compute, -float(bundles.size[k])))
                builder.row(terms, lower=0.0, upper=0.0)
                if compute >= 0 and bundles.workspace[k, d] > 0:
                    workspace = float(bundles.workspace[k, d])
                    budget = float(bundles.budget[d])
                    builder.row([(int(used[k]), 1.0), (compute, workspace)], upper=budget)


def _free(draft: StageDraft, d: int, t: int, u: int, k: int, users: list[int]) -> int:
    """The column of free[d,t,u,k], with its rows."""
    builder = draft.builder
    column = int(builder.binaries(1)[0])
    hazards: Terms = [(int(draft.compute[d, t, k]), -1.0)]
    if draft.keep[d, t + 1, u] >= 0:
        hazards.append((int(draft.keep[d, t + 1, u]), 1.0))
    hazards += [
        (c, 1.0) for j in users if k < j <= t for c in draft.compute[:, t, j].tolist() if c >= 0
    ]
    most = float(len(hazards))
    # 1 - free <= 1 + hazards'   and   most * (1 - free) >= 1 + hazards'
    builder.row([(column, 1.0), *hazards], lower=0.0)
    builder.row([(column, most), *hazards], upper=most - 1.0)
    if len(draft.bundles.devices) > 1:
        builder.row([(column, 1.0), *((c, -v) for c, v in there(draft, d, t, u))], upper=0.0)
    return column
