"""The command line: ``tvm-xengine`` and ``python -m tvm_xengine``."""

import sys

from tvm_xengine.commands.entry import main

if __name__ == "__main__":
    sys.exit(main())
