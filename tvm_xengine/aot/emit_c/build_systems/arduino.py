"""A package as an Arduino library: docs.arduino.cc/arduino-cli/library-specification."""

from __future__ import annotations

from tvm_xengine.aot.emit_c.build_systems.library_facts import VERSION, summary
from tvm_xengine.aot.package.contents import Package


def library_properties(package: Package) -> str:
    """The text of ``library.properties``."""
    return f"""\
name={package.name}
version={VERSION}
author=tvm-xengine
maintainer=tvm-xengine
sentence={summary(package)}.
paragraph=Made for {package.target.name}. The caller owns all memory: no heap, no files.
category=Data Processing
url=https://tvm.apache.org
architectures=*
includes={package.name}.h
"""
