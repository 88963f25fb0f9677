"""A package as a PlatformIO library: docs.platformio.org, "library.json"."""

from __future__ import annotations

import json

from tvm_xengine.aot.emit_c.build_systems.library_facts import SOURCE_OPTIONS, VERSION, summary
from tvm_xengine.aot.package.contents import Package


def library_json(package: Package) -> str:
    """The text of ``library.json``."""
    manifest = {
        "$schema": "https://raw.githubusercontent.com/platformio/platformio-core/develop/"
        "platformio/assets/schema/library.json",
        "name": package.name,
        "version": VERSION,
        "description": summary(package),
        "keywords": ["machine learning", "training"],
        "headers": f"{package.name}.h",
        "frameworks": "*",
        "platforms": "*",
        "build": {"flags": list(SOURCE_OPTIONS)},
    }
    return json.dumps(manifest, indent=2) + "\n"
