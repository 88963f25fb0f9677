"""The subcommands of ``tvm-xengine``."""
