"""The return codes of a package, with a sentence for each."""

from __future__ import annotations

from tvm_xengine.aot.package.contents import Package

OK = "OK"

CHECK_CTX = "  { int32_t status = check_ctx(ctx); if (status) return status; }"
"""The first statement of a C function that takes a context."""

_CODES = {
    OK: (0, "success"),
    "EINVAL": (-1, "missing pointer, overlapping memory, or a call before init or before a state"),
    "EALIGN": (-2, "pointer or memory without the alignment that its type or region needs"),
    "ESIZE": (-3, "too little memory"),
    "EFORMAT": (-4, "no checkpoint, one of another version, or one whose records are wrong"),
    "EPLAN": (-5, "made for another plan"),
    "ECRC": (-6, "checksum does not match: the checkpoint is damaged"),
    "ENAN": (-7, "an input or the loss is NaN or infinite"),
    "EIO": (-8, "a read or write callback failed, or the checkpoint is too short"),
    "ERANGE": (-9, "a label, an index or a learning rate is outside its range"),
    "EBUSY": (-10, "gradients are accumulated: call apply or discard first"),
    "EEMPTY": (-11, "no gradients are accumulated"),
    "EABSENT": (-12, "the checkpoint lacks a tensor"),
    "ESHAPE": (-13, "a tensor of the checkpoint has another shape or type"),
    "EFROZEN": (-14, "the checkpoint has another value of a tensor that is frozen here"),
}


def codes_of(package: Package) -> dict[str, tuple[int, str]]:
    """Number and meaning of each code that the package can return."""
    only_sums = () if package.accumulates else ("EBUSY", "EEMPTY")
    return {name: code for name, code in _CODES.items() if name not in only_sums}


def status_codes(package: Package) -> str:
    """The codes as an enumeration."""
    codes = codes_of(package)
    rows = []
    for name, (value, meaning) in codes.items():
        comma = "" if name == list(codes)[-1] else ","
        rows.append(f"  {package.macro}_{name} = {value}{comma} /* {meaning} */")
    return "\n".join(["enum {", *rows, "};"])


def status_text(package: Package) -> str:
    """The function that says a code in words."""
    cases = "\n".join(
        f'    case {package.macro}_{name}: return "{meaning}";'
        for name, (_, meaning) in codes_of(package).items()
    )
    return f"""\
const char *{package.name}_status_text(int32_t status) {{
  switch (status) {{
{cases}
    default: return "no code of {package.name}";
  }}
}}"""
