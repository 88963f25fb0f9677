"""A* over what is resident where: the proven optimum of small graphs.

It alone proves the optimum among every schedule of the MLP's training step (19 ops) on ``pcie`` at 0.7
and 0.5 of the memory, at the least budget on ``pcie`` and ``shared``, and on ``storage`` at 0.7 and
at the least budget, all within 20 s; the relaxations prove none of these in the same time. To see
it: ``python -m pytest benchmarks/test_astar.py -m slow -s -k mlp``.
"""
