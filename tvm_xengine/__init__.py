"""Place, rematerialize and page training steps under memory budgets: a compiler stage for TVM Relax."""
