"""The version that ``--version`` tells, of whichever command."""


def version_text() -> str:
    """Version of the installed package, read only when it is asked for."""
    from importlib.metadata import version

    return version("tvm-xengine")
