"""C identifiers for the names in a model."""

from __future__ import annotations

import hashlib

_KEYWORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int
long register restrict return short signed sizeof static struct switch typedef union unsigned void
volatile while class new delete template this operator private public protected namespace using try
catch throw true false bool and or not xor main
"""
_LIBRARY = "y0 y1 yn j0 j1 jn gamma log exp sin cos tan sqrt pow round floor ceil erf tanh fabs"
RESERVED = frozenset((*_KEYWORDS.split(), *_LIBRARY.split()))
"""Names that generated code must not define."""

_DRIVER = """
ctx status data bytes align user plan_hash random byte step eval_output saved again i AT NULL overlap
check_ctx check_input check_result memcpy memset memcmp strcmp size_t int8_t uint8_t int16_t uint16_t
int32_t uint32_t int64_t uint64_t
"""
"""What functions with arguments of the model's names use."""

_HEADERS = """
assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg
stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype
"""
_CMAKE = "all clean depend edit_cache help install package preinstall rebuild_cache test"
"""Targets that CMake makes itself (its policy CMP0037)."""
NO_PREFIXES = frozenset((*RESERVED, *_HEADERS.split(), *_CMAKE.split(), "check"))
"""What no package is called: its header would hide one of C's library, or its functions are taken."""

_TOLD_APART, _COUNT = 63, 4
"""Leading characters by which every C11 compiler knows a name (5.2.4.1), and room for a number in them."""
_LEAST = 16
"""Of a kernel's own name, however long its prefix is."""


def kernel_identifier(prefix: str, name: str) -> str:
    """What a kernel is called in C, without TVM's own words; one of many ops by the first of them."""
    own = name.removeprefix("fused_").replace("tir_", "")
    most = max(_TOLD_APART - _COUNT - len(prefix) - 1, _LEAST)
    if len(own) > most:
        own = own[: own.rfind("_", 0, most + 1)] if "_" in own[:most] else own[:most]
    return f"{prefix}_{own}"


def c_identifier(name: str) -> str:
    """A C identifier for the tensor `name`: unchanged where it is valid, distinct for each name."""
    text = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    text = text if text and not text[0].isdigit() else f"t_{text}"
    if text == name and text not in RESERVED and text not in _DRIVER.split():
        return text
    return f"{text}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"
