"""A clock for limits that moves when something is said to have taken time."""

from tvm_xengine.solvers.time_source import MachineTime


class TurnedTime(MachineTime):
    """Processor time of the process is that of the machine."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def now_s(self) -> float:
        return self.at_s

    thread_s = now_s
