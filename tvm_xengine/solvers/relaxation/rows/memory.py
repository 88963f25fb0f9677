"""What is there fits the budgets: rows of the time point relaxation."""

from __future__ import annotations

import numpy as np

from tvm_xengine.solvers.relaxation.rows.draft import Draft


def stay_within_budgets(draft: Draft) -> None:
    """At every time point, and at the end, what is there fits the budget.

    sum_j size_j keep[k,d,j] + sum_i (new results and workspace of i) at[k,d,i]
        + sum_iv w_v takes[k,d,i,v] <= budget_d
    """
    p = draft.p
    made = [sum(p.size[j] for j in makes if p.update_of[j] < 0) for makes in p.makes]
    fresh = np.array(made, np.int64)[:, None] + p.workspace
    for k in range(draft.time_point_count + 1):
        for d in np.flatnonzero(~draft.is_uncapacitated).tolist():
            kept = np.flatnonzero(draft.keep[k, d] >= 0)
            row = draft.builder.new_rows(1, upper=float(p.budget[d]))
            draft.budget_rows[d].append(int(row[0]))
            draft.builder.entries(
                np.repeat(row, len(kept)), draft.keep[k, d, kept], p.size[kept].astype(float)
            )
            if k < draft.time_point_count:
                ops = np.flatnonzero(draft.at[k, d] >= 0)
                draft.builder.entries(
                    np.repeat(row, len(ops)), draft.at[k, d, ops], fresh[ops, d].astype(float)
                )
                for i in ops.tolist():
                    for column, more in draft.more_workspace(draft.at_takes[k, d, i], i, d):
                        draft.builder.entries(row, column, more)


def fit_while_running(draft: Draft) -> None:
    """What op i needs on d fits together with all that is held there throughout the period.

    held[k,d] = sum_j size_j hold[k,d,j]
    held[k,d] - sum over what i touches of size_j hold[k,d,j] + need[d,i] run[k,d,i]
        + sum_v w_v takes[k,d,i,v] <= budget_d
    """
    p = draft.p
    touched = [sorted({*reads, *makes}) for reads, makes in zip(p.reads, p.makes, strict=True)]
    own = np.array([sum(p.size[j] for j in t if p.update_of[j] < 0) for t in touched])
    need, most_needed = own[:, None] + p.workspace, own[:, None] + p.kernels.workspace[:, :, -1]
    for k, d in np.ndindex(draft.held.shape):
        holding = np.flatnonzero(draft.hold[k, d] >= 0)
        ops = np.flatnonzero(draft.run[k, d] >= 0)
        most = float(p.size[holding].sum())
        rows = [
            int(i)
            for i in ops.tolist()
            if most
            + most_needed[i, d]
            - sum(p.size[j] for j in touched[i] if draft.hold[k, d, j] >= 0)
            > p.budget[d]
        ]
        if not rows:
            continue
        held = int(draft.builder.new_columns(1)[0])
        draft.held[k, d] = held
        sum_row = draft.builder.new_rows(1, lower=0.0, upper=0.0)
        draft.builder.entries(sum_row, held, -float(p.budget[d]))
        draft.builder.entries(
            np.repeat(sum_row, len(holding)),
            draft.hold[k, d, holding],
            p.size[holding].astype(float),
        )
        for i in rows:
            away = [(int(draft.hold[k, d, j]), -float(p.size[j])) for j in touched[i]]
            row = draft.builder.row(
                [
                    (held, float(p.budget[d])),
                    (int(draft.run[k, d, i]), float(need[i, d])),
                    *((column, value) for column, value in away if column >= 0),
                    *draft.more_workspace(draft.run_takes[k, d, i], i, d),
                ],
                upper=float(p.budget[d]),
            )
            draft.budget_rows[d].append(row)
