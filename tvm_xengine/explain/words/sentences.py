"""Findings about tensors in words."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_xengine.explain.fates import COPIED_FROM, Fate, Stay, TensorFate
from tvm_xengine.explain.prices.bound_price import BoundPrice
from tvm_xengine.explain.prices.memory_price import MORE_RATIO, MemoryPrice
from tvm_xengine.explain.prices.smallest_budget import SmallestBudget
from tvm_xengine.planning.alternatives.changed_schedule import LAYOUT, Alternative, Excess, Way
from tvm_xengine.scheduling.durations import format_amount
from tvm_xengine.scheduling.sizes import format_bytes

_SAME_RATIO = 1e-6
"""A saving that is so close to its bound reaches it: both are sums that were rounded."""
_WORD = {
    Fate.KEPT: "kept until its last use",
    Fate.STATE: "stays in place",
    Fate.UNUSED: "made and never read",
}


def fate_in_words(fate: TensorFate) -> str:
    """What happens to a tensor: ``recomputed once, copied to disk and back``."""
    parts = []
    if fate.recomputed:
        parts.append(f"recomputed {_times(fate.recomputed)}")
    if fate.moves:
        parts.append(f"copied {_ways(fate)}")
    return ", ".join(parts) or _WORD[fate.fate]


def _ways(fate: TensorFate) -> str:
    """Where a tensor is copied: ``to disk and back``; only how often where that is a longer story."""
    copied = [stay for stay in fate.stays if stay.came_by.startswith(COPIED_FROM)]
    source = copied[0].came_by.removeprefix(COPIED_FROM)
    match [stay.device for stay in copied]:
        case [device]:
            return f"to {device}"
        case [device, back] if back == source and copied[1].came_by == COPIED_FROM + device:
            return f"to {device} and back"
        case devices:
            return _times(len(devices))


def stay_in_words(stay: Stay) -> str:
    """One stay: where, since when, and when it is freed."""
    since = "from the beginning" if stay.first_step < 0 else f"from step {stay.first_step}"
    if not stay.is_freed:
        until = "until the end"
    elif stay.last_use:
        until = f"freed after {stay.last_use} (step {stay.last_step})"
    else:
        until = f"freed unread after step {stay.last_step}"
    return f"on {stay.device} {since} ({stay.came_by}), {until}"


def price_in_words(alternative: Alternative, unit: str) -> str:
    """What an alternative costs: the difference, and which budgets it breaks where."""
    difference = difference_in_words(alternative.difference, unit)
    if alternative.fits:
        return f"fits, {difference}"
    broken = "; ".join(
        f"{format_bytes(one.excess_bytes)} over the budget of {one.device}{at_in_words(one)}"
        for one in alternative.excess
    )
    return f"{difference}, {'and' if alternative.difference > 0 else 'but'} is {broken}"


def at_in_words(excess: Excess) -> str:
    """Where a budget is broken: at a step, or in the layout."""
    return " as laid out" if excess.during == LAYOUT else f" at {excess.during}"


def difference_in_words(difference: float, unit: str) -> str:
    """A difference of the objective: ``costs 12 us more``."""
    size = abs(difference)
    amount = format_amount(size, unit)
    if not size:
        return "costs the same"
    return f"costs {amount} more" if difference > 0 else f"saves {amount}"


def reason_in_words(alternatives: Sequence[Alternative], unit: str) -> str:
    """Why a tensor is treated as it is, from its best alternative."""
    if not alternatives:
        return "with all else as planned no other way is valid"
    best = alternatives[0]
    kept = next((one for one in alternatives if one.way is Way.KEEP), None)
    if best.fits and best.difference < 0:
        saving = difference_in_words(best.difference, unit)
        return f"the search has missed something better: {best.what} fits and {saving}"
    next_best = f"next best: {best.what}: {price_in_words(best, unit)}"
    if kept is None or kept.fits:
        return next_best
    why = f"because it does not fit to {kept.what}: that {price_in_words(kept, unit)}"
    return f"{why}; nothing else is valid" if kept is best else f"{why}; {next_best}"


def share_in_words(amount: float, value: float, unit: str) -> str:
    """An amount and its share of the objective: ``55 us (0.18 %)``."""
    share = f" ({100 * amount / value:.2f} %)" if value > 0 else ""
    return f"{format_amount(amount, unit)}{share}"


def smallest_in_words(found: SmallestBudget) -> str:
    """Between what the smallest budget of a device lies, and why less does not work."""
    known, least = format_bytes(found.known_bytes), format_bytes(found.least_bytes)
    if not found.known_bytes:
        return "A schedule that needs none of its memory is known."
    if not found.least_bytes:
        return f"Smallest budget known: {known}. It may be possible with less: {found.because}."
    if found.known_bytes <= found.least_bytes:
        return f"Smallest budget: {known}. Less does not work: {found.because}."
    return (
        f"Smallest budget known: {known}. Below {least} nothing works: {found.because}. Between the"
        " two it is open."
    )


def price_of_memory(price: MemoryPrice, value: float, unit: str) -> str:
    """What more memory of a device buys."""
    more = f"With {format_bytes(price.more_bytes)} more"
    saved = share_in_words(price.saved, value, unit)
    if price.saved and not price.needs_more:
        return (
            f"{more}, solving again saved {saved}, but the better schedule fits the planned budget as"
            " well: it is owed to the longer search."
        )
    if not price.saved_at_most:
        return f"{more}, nothing can be saved, which is proven."
    at_most = share_in_words(price.saved_at_most, value, unit)
    if not price.saved:
        return (
            f"{more}, no better schedule was found in {price.solve_s:.1f} s; none saves more than"
            f" {at_most}."
        )
    found = f"{more}, a schedule saves {saved}, {format_amount(price.saved_per_mib, unit)} per MiB"
    if price.saved >= (1 - _SAME_RATIO) * price.saved_at_most:
        return f"{found}; none saves more, which is proven."
    return f"{found}; none saves more than {at_most}."


def price_from_bound(price: BoundPrice, value: float, unit: str, *, is_alone: bool) -> str:
    """What more and less memory of a device can change, by a proven bound.

    Parameters
    ----------
    is_alone
        Whether nothing else says what more memory can save.
    """
    if not price.per_mib:
        most = share_in_words(value - price.bound, value, unit)
        return (
            f"However much memory there is, no schedule saves more than {most}." if is_alone else ""
        )
    more = int(MORE_RATIO * price.budget_bytes)
    at_most = share_in_words(value - price.at(price.budget_bytes + more), value, unit)
    if_more = f" with {format_bytes(more)} more no schedule saves more than {at_most};"
    return (
        f"One MiB more lowers the proven bound by {format_amount(price.per_mib, unit)};"
        f"{if_more if is_alone else ''} with {format_bytes(more)} less no schedule takes less than"
        f" {format_amount(price.at(price.budget_bytes - more), unit)}."
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
