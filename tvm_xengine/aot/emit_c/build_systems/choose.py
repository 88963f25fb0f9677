"""The files of each layout beside the C sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm_xengine.aot.emit_c.build_systems.arduino import library_properties
from tvm_xengine.aot.emit_c.build_systems.cmake import cmake_config, cmake_lists, make_fragment
from tvm_xengine.aot.emit_c.build_systems.esp_idf import idf_component, idf_manifest
from tvm_xengine.aot.emit_c.build_systems.platformio import library_json
from tvm_xengine.aot.emit_c.build_systems.zephyr import module_cmake, module_kconfig, module_yml
from tvm_xengine.aot.package.contents import Package


def build_files(package: Package) -> dict[str, str]:
    """Texts by path in the package."""
    files = _FILES[package.layout.name]
    return {path.format(name=package.name): text(package) for path, text in files.items()}


_FILES: Mapping[str, Mapping[str, Callable[[Package], str]]] = {
    "cmake": {
        "CMakeLists.txt": cmake_lists,
        "{name}-config.cmake": cmake_config,
        "{name}.mk": make_fragment,
    },
    "zephyr": {
        "zephyr/module.yml": module_yml,
        "zephyr/CMakeLists.txt": module_cmake,
        "zephyr/Kconfig": module_kconfig,
    },
    "arduino": {"library.properties": library_properties},
    "platformio": {"library.json": library_json},
    "esp-idf": {"CMakeLists.txt": idf_component, "idf_component.yml": idf_manifest},
}
