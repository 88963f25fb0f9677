"""Checkpoints: their C functions, and reading and writing them from Python.

A checkpoint is a header and the state. The header (24 bytes, little-endian) is the magic
``XECP``, the version (u32), the plan hash (u64), the payload's bytes (u32) and the CRC-32 of the
20 bytes before it and the payload. The payload is every state tensor in the plan's order and then
the settings, as they lie in memory, without padding.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.aot.package.contents import SCHEMA, Package
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.files.atomic_write import write_bytes_atomically

Array = NDArray[np.generic]

MAGIC = b"XECP"
_LEADING = struct.Struct("<4sIQI")
HEADER_BYTES = _LEADING.size + 4
"""The leading fields and the CRC-32."""

CHECK_CTX = "  { int32_t status = check_ctx(ctx); if (status) return status; }"
"""The first statement of a C function that takes a context."""


def read_checkpoint(
    path: Path, plan: Mapping[str, object]
) -> tuple[dict[str, Array], dict[str, float]]:
    """The state and the settings in a checkpoint of the package whose plan document is `plan`.

    Raises
    ------
    UnsupportedModelError
        If the file is truncated, corrupt, of another version or of another plan.
    """
    content = path.read_bytes()
    fields, hyper = _layout(plan)
    payload_bytes = sum(size for *_, size in fields) + 4 * len(hyper)
    if len(content) < HEADER_BYTES:
        raise UnsupportedModelError(
            f"{path}: {len(content)} bytes are no checkpoint: its header has {HEADER_BYTES}"
        )
    magic, version, plan_hash, size = _LEADING.unpack_from(content)
    (crc,) = struct.unpack_from("<I", content, _LEADING.size)
    expected = int(str(plan["plan_hash"]), 16)
    for what, found, wanted in (
        ("magic", magic, MAGIC),
        ("version", version, SCHEMA),
        ("plan hash", plan_hash, expected),
        ("payload bytes", size, payload_bytes),
        ("bytes after the header", len(content) - HEADER_BYTES, payload_bytes),
    ):
        if found != wanted:
            raise UnsupportedModelError(f"{path}: expected {what} {wanted!r}, found {found!r}")
    payload = content[HEADER_BYTES:]
    if crc != zlib.crc32(payload, zlib.crc32(content[: _LEADING.size])):
        raise UnsupportedModelError(f"{path}: the checksum does not match, the file is corrupt")
    state: dict[str, Array] = {}
    at = 0
    for name, dtype, shape, size_bytes in fields:
        state[name] = np.frombuffer(payload[at : at + size_bytes], dtype).reshape(shape).copy()
        at += size_bytes
    settings = {
        name: float(value)
        for name, value in zip(hyper, np.frombuffer(payload[at:], "<f4"), strict=True)
    }
    return state, settings


def write_checkpoint(
    path: Path,
    plan: Mapping[str, object],
    state: Mapping[str, Array],
    settings: Mapping[str, float],
) -> None:
    """Write a checkpoint that the package whose plan document is `plan` loads.

    Raises
    ------
    UnsupportedModelError
        If a tensor is missing or has another shape.
    """
    fields, hyper = _layout(plan)
    parts = []
    for name, dtype, shape, _ in fields:
        if name not in state or tuple(state[name].shape) != shape:
            found = state[name].shape if name in state else "nothing"
            raise UnsupportedModelError(
                f"the checkpoint needs {name} of shape {shape}, got {found}"
            )
        parts.append(np.ascontiguousarray(state[name], dtype).tobytes())
    parts.append(np.asarray([settings[name] for name in hyper], "<f4").tobytes())
    payload = b"".join(parts)
    leading = _LEADING.pack(MAGIC, SCHEMA, int(str(plan["plan_hash"]), 16), len(payload))
    crc = struct.pack("<I", zlib.crc32(payload, zlib.crc32(leading)))
    write_bytes_atomically(path, leading + crc + payload)


def _layout(
    plan: Mapping[str, object],
) -> tuple[list[tuple[str, str, tuple[int, ...], int]], Sequence[str]]:
    rows = plan["state"]
    assert isinstance(rows, list)
    fields = [(str(r["name"]), str(r["dtype"]), tuple(r["shape"]), int(r["bytes"])) for r in rows]
    hyper = plan["settings"]
    assert isinstance(hyper, Mapping)
    return fields, list(hyper)


def checkpoint_functions(package: Package) -> str:
    """The C functions that save and load a checkpoint."""
    name, macro = package.name, package.macro
    position = {region: at for at, region in enumerate(package.regions)}
    rows = ",\n".join(
        f"    {{{position[t.place.device]}, {t.place.offset_bytes}u, {t.place.size_bytes}u}}"
        f" /* {t.c_name} */"
        for t in package.state
    )
    count = len(package.state)
    settings = len(package.hyper)
    store = "\n".join(f"  values[{at}] = ctx->{hyper};" for at, hyper in enumerate(package.hyper))
    restore = "\n".join(f"  ctx->{hyper} = values[{at}];" for at, hyper in enumerate(package.hyper))
    return _TEMPLATE.format(
        name=name,
        MACRO=macro,
        CHECK_CTX=CHECK_CTX,
        rows=rows,
        count=count,
        settings=max(settings, 1),
        settings_bytes=4 * settings,
        store=store or "  values[0] = 0.0f;",
        forget="\n  ctx->samples = 0;" if package.accumulates else "",
        restore=restore or "  (void)values;",
        header=HEADER_BYTES,
        leading=_LEADING.size,
        version=SCHEMA,
        payload=package.state_bytes + 4 * settings,
    )


_TEMPLATE = """\
/* Where each tensor of the state lies: region, offset, bytes. */
static const struct {{
  uint8_t region;
  uint32_t offset, bytes;
}} state_parts[{count}] = {{
{rows}}};

/* CRC-32 of IEEE 802.3, four bits at a time. */
static uint32_t crc32_of(uint32_t crc, const uint8_t *data, size_t bytes) {{
  static const uint32_t table[16] = {{
      0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u,
      0x4db26158u, 0x5005713cu, 0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
      0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu}};
  crc = ~crc;
  for (size_t i = 0; i < bytes; i++) {{
    crc ^= data[i];
    crc = table[crc & 15u] ^ (crc >> 4);
    crc = table[crc & 15u] ^ (crc >> 4);
  }}
  return ~crc;
}}

static void put(uint8_t *to, uint64_t value, int bytes) {{
  for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> (8 * i));
}}

static uint64_t get(const uint8_t *from, int bytes) {{
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) value |= (uint64_t)from[i] << (8 * i);
  return value;
}}

static void get_settings(const {name}_ctx *ctx, float *values) {{
  (void)ctx;
{store}
}}

static void set_settings({name}_ctx *ctx, const float *values) {{
  (void)ctx;
{restore}
}}

size_t {name}_checkpoint_bytes(void) {{ return {header}u + {payload}u; }}

int32_t {name}_checkpoint_save(const {name}_ctx *ctx, {name}_write_fn write, void *user) {{
  uint8_t header[{header}] = {{'X', 'E', 'C', 'P'}};
  float values[{settings}];
  uint32_t crc;
{CHECK_CTX}
  if (!ctx->ready || !write) return {MACRO}_EINVAL;
  get_settings(ctx, values);
  put(header + 4, {version}u, 4);
  put(header + 8, {MACRO}_PLAN_HASH, 8);
  put(header + 16, {payload}u, 4);
  crc = crc32_of(0, header, {leading});
  for (int i = 0; i < {count}; i++)
    crc = crc32_of(crc, ctx->region[state_parts[i].region] + state_parts[i].offset, state_parts[i].bytes);
  crc = crc32_of(crc, (const uint8_t *)values, {settings_bytes});
  put(header + {leading}, crc, 4);
  if (write(user, header, sizeof header)) return {MACRO}_EIO;
  for (int i = 0; i < {count}; i++)
    if (write(user, ctx->region[state_parts[i].region] + state_parts[i].offset, state_parts[i].bytes))
      return {MACRO}_EIO;
  if ({settings_bytes} && write(user, values, {settings_bytes})) return {MACRO}_EIO;
  return {MACRO}_OK;
}}

/* Everything is read and checked before anything is written, then read once more. If that second
   reading differs from the first, the state is void: the next step is refused until it is reset or
   loaded. */
int32_t {name}_checkpoint_load({name}_ctx *ctx, {name}_read_fn read, void *user) {{
  uint8_t header[{header}], chunk[64];
  float values[{settings}] = {{0}};
  uint32_t crc, expected;
  size_t at = {header}, left = {payload};
{CHECK_CTX}
  if (!ctx->region[0] || !read) return {MACRO}_EINVAL;
  if (read(user, 0, header, sizeof header)) return {MACRO}_EIO;
  if (memcmp(header, "XECP", 4) || get(header + 4, 4) != {version}u) return {MACRO}_EFORMAT;
  if (get(header + 8, 8) != {MACRO}_PLAN_HASH) return {MACRO}_EPLAN;
  if (get(header + 16, 4) != {payload}u) return {MACRO}_ESIZE;
  expected = (uint32_t)get(header + {leading}, 4);
  crc = crc32_of(0, header, {leading});
  while (left) {{
    size_t part = left < sizeof chunk ? left : sizeof chunk;
    if (read(user, at, chunk, part)) return {MACRO}_EIO;
    crc = crc32_of(crc, chunk, part);
    at += part;
    left -= part;
  }}
  if (crc != expected) return {MACRO}_ECRC;
  ctx->ready = 0;{forget}
  at = {header};
  crc = crc32_of(0, header, {leading});
  for (int i = 0; i < {count}; i++) {{
    uint8_t *tensor = ctx->region[state_parts[i].region] + state_parts[i].offset;
    if (read(user, at, tensor, state_parts[i].bytes)) return {MACRO}_EIO;
    crc = crc32_of(crc, tensor, state_parts[i].bytes);
    at += state_parts[i].bytes;
  }}
  if ({settings_bytes} && read(user, at, values, {settings_bytes})) return {MACRO}_EIO;
  crc = crc32_of(crc, (const uint8_t *)values, {settings_bytes});
  if (crc != expected) return {MACRO}_ECRC;
  set_settings(ctx, values);
  ctx->ready = 1;
  return {MACRO}_OK;
}}"""
