"""A* over states of residency: the proven optimum of small graphs.

It alone proves the optimum among every schedule of the MLP's training step (19 ops) on ``pcie`` and
``storage`` at 0.7 of the memory, and at the least budget on ``pcie``, ``shared`` and ``storage``, all
within 20 s; the relaxations prove none of these in the same time. To see it:
``python -m pytest benchmarks/solvers/test_astar.py -m slow -s -k mlp``.
"""
