"""The text of the C functions of checkpoints, in the order in which they call each other."""

STATE = """\
/* What checkpoints hold: state, which starts as `value` or as zeros, and from PARTS_STATE on settings;
   from PARTS_KEPT on what only is compared: frozen values in flash. */
enum {{ PARTS_STATE = {state}, PARTS_KEPT = {kept}, PARTS = {rows} }};
typedef struct {{
  const void *value;
  uint32_t offset, bytes;
  uint8_t region, type, rank, of_training;
}} part;
static const part parts[] = {{
{parts}}};"""

RECORDS = """\
/* Names and shapes of the parts; several have the same shape. */
static const struct {{
  const char *text;
  uint16_t bytes, shape;
}} names[] = {{
{names}}};
static const uint32_t shapes[][{rank}] = {{
{shapes}}};

/* CRC-32 of IEEE 802.3, four bits at a time. */
static uint32_t crc32_of(uint32_t crc, const void *data, size_t bytes) {{
  static const uint32_t table[16] = {{
      0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u,
      0x4db26158u, 0x5005713cu, 0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
      0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu}};
  const uint8_t *from = data;
  crc = ~crc;
  for (size_t i = 0; i < bytes; i++) {{
    crc ^= from[i];
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

/* Whether a package could have been set so. */
static int may_be_set(const float *values) {{
  (void)values;
{may_be_set}
  return 1;
}}

static uint8_t *place_of(const {name}_ctx *ctx, float *values, const part *p) {{
  return (p->region == {settings_region}u ? (uint8_t *)values : ctx->region[p->region]) + p->offset;
}}"""

SAVE = """\
typedef struct {{
  {name}_write_fn write;
  void *user;
  uint32_t crc;
  int32_t status;
}} sink;

static void emit(sink *to, const void *data, size_t bytes) {{
  if (to->status || !bytes) return;
  to->crc = crc32_of(to->crc, data, bytes);
  if (to->write(to->user, data, bytes)) to->status = {MACRO}_EIO;
}}

static void emit_part(sink *to, int i, const uint8_t *data) {{
  const part *p = &parts[i];
  uint8_t head[{head}];
  size_t at = {record};
  put(head, names[i].bytes, 2);
  head[2] = p->type;
  head[3] = p->rank;
  put(head + 4, p->bytes, 4);
  for (int d = 0; d < p->rank; d++, at += 4) put(head + at, shapes[names[i].shape][d], 4);
  memcpy(head + at, names[i].text, names[i].bytes);
  for (at += names[i].bytes; at % 4; at++) head[at] = 0;
  emit(to, head, at);
  emit(to, data, p->bytes);
  put(head, 0, 4);
  emit(to, head, (0u - p->bytes) & 3u);
}}

static int32_t save_as(const {name}_ctx *ctx, uint64_t sequence, {name}_write_fn write, void *user) {{
  sink to = {{write, user, 0, {MACRO}_OK}};
  uint8_t header[{header}] = {{'X', 'E', 'C', 'P'}};
  float values[{settings}];
  get_settings(ctx, values);
  put(header + 4, {version}u, 4);
  put(header + 8, sequence, 8);
  put(header + 16, {origin}, 8);
  put(header + 24, {frozen}, 8);
  put(header + 32, {optimizer}, 4);
  put(header + 36, PARTS_KEPT, 4);
  put(header + 40, {payload}u, 4);
  put(header + 44, crc32_of(0, header, 44), 4);
  emit(&to, header, sizeof header);
  for (int i = 0; i < PARTS_KEPT; i++) emit_part(&to, i, place_of(ctx, values, &parts[i]));
  put(header, to.crc, 4);
  emit(&to, header, 4);
  return to.status;
}}

size_t {name}_checkpoint_bytes(void) {{ return {total}u; }}

int32_t {name}_checkpoint_save(const {name}_ctx *ctx, {name}_write_fn write, void *user) {{
{CHECK_CTX}
  if (!ctx->ready || !write) return {MACRO}_EINVAL;
  return save_as(ctx, 0, write, user);
}}"""

LOAD = """\
typedef struct {{
  {name}_read_fn read;
  void *user;
  size_t at, left; /* of the records */
  uint32_t crc;
  int32_t status;
  uint64_t sequence, origin, frozen;
  uint32_t optimizer, records;
}} source;

/* Checks the header, and stands before the first record. */
static int32_t open_source(source *from, {name}_read_fn read, void *user) {{
  uint8_t header[{header}];
  if (read(user, 0, header, sizeof header)) return {MACRO}_EIO;
  if (memcmp(header, "XECP", 4) || get(header + 4, 4) != {version}u) return {MACRO}_EFORMAT;
  if (crc32_of(0, header, 44) != get(header + 44, 4)) return {MACRO}_ECRC;
  from->read = read;
  from->user = user;
  from->at = sizeof header;
  from->left = (size_t)get(header + 40, 4);
  from->crc = crc32_of(0, header, sizeof header);
  from->status = {MACRO}_OK;
  from->sequence = get(header + 8, 8);
  from->origin = get(header + 16, 8);
  from->frozen = get(header + 24, 8);
  from->optimizer = (uint32_t)get(header + 32, 4);
  from->records = (uint32_t)get(header + 36, 4);
  return {MACRO}_OK;
}}

/* Reads the next bytes of the records; without `to` they are only compared with `expected`, if there
   is one. Whether they are equal is in `*equal`. */
static int32_t take(source *from, void *to, const void *expected, size_t bytes, int *equal) {{
  uint8_t chunk[64];
  const uint8_t *wanted = expected;
  if (!from->status && bytes > from->left) from->status = {MACRO}_EFORMAT;
  while (bytes && !from->status) {{
    size_t count = to || bytes < sizeof chunk ? bytes : sizeof chunk;
    void *into = to ? to : chunk;
    if (from->read(from->user, from->at, into, count)) {{
      from->status = {MACRO}_EIO;
      break;
    }}
    from->crc = crc32_of(from->crc, into, count);
    if (wanted) {{
      if (memcmp(into, wanted, count)) *equal = 0;
      wanted += count;
    }}
    from->at += count;
    from->left -= count;
    bytes -= count;
  }}
  return from->status;
}}

/* Reads the rest. What is damaged is refused as such, whatever was `found` in it. */
static int32_t finish(source *from, int32_t found) {{
  uint8_t trailer[4];
  if (from->status == {MACRO}_EIO) return {MACRO}_EIO;
  from->status = {MACRO}_OK;
  if (take(from, NULL, NULL, from->left, NULL)) return from->status;
  if (from->read(from->user, from->at, trailer, sizeof trailer)) return {MACRO}_EIO;
  return get(trailer, 4) == from->crc ? found : {MACRO}_ECRC;
}}

/* The part that the next bytes name, of which `*alike` says whether type and shape are the same. */
static const part *named(source *from, uint32_t *bytes, int *alike) {{
  uint8_t head[{record}], name[{longest_name}];
  uint32_t shape[{rank}] = {{0}};
  size_t name_bytes, rank;
  if (take(from, head, NULL, sizeof head, NULL)) return NULL;
  name_bytes = (size_t)get(head, 2);
  rank = head[3];
  *bytes = (uint32_t)get(head + 4, 4);
  for (size_t d = 0; d < rank; d++) {{
    uint8_t extent[4];
    if (take(from, extent, NULL, sizeof extent, NULL)) return NULL;
    if (d < {rank}u) shape[d] = (uint32_t)get(extent, 4);
  }}
  if (take(from, name_bytes > sizeof name ? NULL : name, NULL, name_bytes, NULL)) return NULL;
  if (take(from, NULL, NULL, (0u - name_bytes) & 3u, NULL)) return NULL;
  for (int i = 0; i < PARTS; i++) {{
    const part *p = &parts[i];
    if (names[i].bytes != name_bytes || memcmp(names[i].text, name, name_bytes)) continue;
    *alike = p->type == head[2] && p->rank == rank && p->bytes == *bytes;
    for (size_t d = 0; *alike && d < rank; d++) *alike = shapes[names[i].shape][d] == shape[d];
    return p;
  }}
  return NULL;
}}

/* Reads one record: settings into `values`, other state where it lies if it is to be `written`. What the
   package does not have is read over. */
static int32_t take_record(const {name}_ctx *ctx, source *from, float *values, int written,
                           uint8_t *found, {name}_loaded *report) {{
  uint32_t bytes = 0;
  int alike = 0, equal = 1, frozen;
  void *into = NULL;
  const part *p = named(from, &bytes, &alike);
  if (p && p->of_training && from->optimizer != {optimizer}) p = NULL;
  frozen = p && p - parts >= PARTS_KEPT;
  if (p) {{
    size_t at = (size_t)(p - parts);
    if (found[at / 8] & (1u << at % 8)) return {MACRO}_EFORMAT;
    found[at / 8] = (uint8_t)(found[at / 8] | (1u << at % 8));
    report->tensor = names[at].text;
    if (!alike) return {MACRO}_ESHAPE;
    if (!frozen) report->taken++;
  }} else if (!from->status) {{
    report->ignored++;
  }}
  if (p && !frozen && (written || p->region == {settings_region}u)) into = place_of(ctx, values, p);
  take(from, into, frozen ? p->value : NULL, bytes, &equal);
  if (!equal) return {MACRO}_EFROZEN;
  if (!may_be_set(values)) return {MACRO}_ERANGE;
  return take(from, NULL, NULL, (0u - bytes) & 3u, NULL);
}}

/* Reads all records: settings into `values`, other state where it lies if it is to be `written`. */
static int32_t take_records(const {name}_ctx *ctx, source *from, uint32_t absent, float *values,
                            int written, {name}_loaded *report) {{
  uint8_t found[{found}] = {{0}};
  memset(report, 0, sizeof *report);
  report->sequence = from->sequence;
  for (uint32_t r = 0; r < from->records; r++) {{
    int32_t status = take_record(ctx, from, values, written, found, report);
    if (status) return status;
  }}
  if (from->left) return {MACRO}_EFORMAT;
  for (int i = 0; i < PARTS; i++) {{
    int same_origin = from->origin == {origin};
    if (found[i / 8] & (1u << i % 8)) continue;
    report->tensor = names[i].text;
    if (i >= PARTS_KEPT) {{
      if (!same_origin && from->frozen != {frozen}) return {MACRO}_EFROZEN;
      continue;
    }}
    report->initialised++;
    if (absent != {MACRO}_INITIALISE_ABSENT) return {MACRO}_EABSENT;
    if (!parts[i].of_training && !same_origin) return {MACRO}_EABSENT;
  }}
  report->tensor = NULL;
  return {MACRO}_OK;
}}

/* Everything is read and checked before anything is written, then read once more. If that second
   reading differs from the first, the state is void: the next step is refused until it is reset or
   loaded. */
static int32_t load_by_name({name}_ctx *ctx, {name}_read_fn read, void *user, uint32_t absent,
                            {name}_loaded *report) {{
  source from = {{0}}, again;
  float values[{settings}];
  int32_t status = open_source(&from, read, user);
  if (status) return status;
  again = from;
  get_settings(ctx, values);
  status = finish(&from, take_records(ctx, &from, absent, values, 0, report));
  if (status > {MACRO}_EABSENT && status != {MACRO}_ERANGE) report->tensor = NULL; /* not refused for it */
  if (status) return status;
  status = {name}_state_reset(ctx);
  if (status) return status;
  ctx->ready = 0;
  get_settings(ctx, values);
  status = finish(&again, take_records(ctx, &again, absent, values, 1, report));
  if (!status && again.crc != from.crc) status = {MACRO}_ECRC;
  if (status) return status;
  set_settings(ctx, values);
  ctx->ready = 1;
  return {MACRO}_OK;
}}

/* The arguments of a load; a missing report is replaced. */
static int32_t check_load(const {name}_ctx *ctx, uint32_t absent, {name}_loaded **report,
                          {name}_loaded *own) {{
{CHECK_CTX}
  if (!ctx->region[0] || absent > {MACRO}_INITIALISE_ABSENT) return {MACRO}_EINVAL;
  if (!*report) {{
    *report = own;
    return {MACRO}_OK;
  }}
  if ((uintptr_t)*report % _Alignof({name}_loaded)) return {MACRO}_EALIGN;
  return check_result(ctx, *report, sizeof **report);
}}

int32_t {name}_checkpoint_load({name}_ctx *ctx, {name}_read_fn read, void *user, uint32_t absent,
                               {name}_loaded *report) {{
  {name}_loaded own;
  int32_t status = check_load(ctx, absent, &report, &own);
  if (status) return status;
  if (!read) return {MACRO}_EINVAL;
  memset(report, 0, sizeof *report);
  return load_by_name(ctx, read, user, absent, report);
}}"""

SLOTS = """\
/* The number of the checkpoint in a slot, if it is undamaged. */
static int32_t look_into(const {name}_slot *slot, uint64_t *sequence) {{
  source from = {{0}};
  int32_t status = open_source(&from, slot->read, slot->user);
  if (!status) status = finish(&from, {MACRO}_OK);
  *sequence = from.sequence;
  return status;
}}

int32_t {name}_slots_save(const {name}_ctx *ctx, const {name}_slot *slots, uint32_t count) {{
  uint64_t newest = 0, oldest = UINT64_MAX, sequence = 0;
  const {name}_slot *into = NULL;
  int found_free = 0;
{CHECK_CTX}
  if (!ctx->ready || count < 2) return {MACRO}_EINVAL;
  {{
    int32_t status = check_input(ctx, slots, count * sizeof *slots, _Alignof({name}_slot));
    if (status) return status;
  }}
  for (uint32_t i = 0; i < count; i++)
    if (!slots[i].read || !slots[i].write) return {MACRO}_EINVAL;
  for (uint32_t i = 0; i < count; i++) {{
    int is_free = look_into(&slots[i], &sequence) != {MACRO}_OK;
    if (!is_free && sequence >= newest) newest = sequence;
    if (!found_free && (is_free || sequence < oldest || !into)) {{
      into = &slots[i];
      oldest = sequence;
      found_free = is_free;
    }}
  }}
  if (into->erase && into->erase(into->user)) return {MACRO}_EIO;
  {{
    int32_t status = save_as(ctx, newest + 1, into->write, into->user);
    if (!status) status = look_into(into, &sequence);
    if (status) return status;
  }}
  return sequence == newest + 1 ? {MACRO}_OK : {MACRO}_ECRC;
}}

int32_t {name}_slots_load({name}_ctx *ctx, const {name}_slot *slots, uint32_t count, uint32_t absent,
                          {name}_loaded *report) {{
  {name}_loaded own;
  uint64_t below = UINT64_MAX, sequence = 0;
  int32_t status = check_load(ctx, absent, &report, &own);
  if (status) return status;
  if (!count) return {MACRO}_EINVAL;
  status = check_input(ctx, slots, count * sizeof *slots, _Alignof({name}_slot));
  if (status) return status;
  for (uint32_t i = 0; i < count; i++)
    if (!slots[i].read) return {MACRO}_EINVAL;
  memset(report, 0, sizeof *report);
  for (;;) {{
    const {name}_slot *newest = NULL;
    uint64_t best = 0;
    for (uint32_t i = 0; i < count; i++)
      if (!look_into(&slots[i], &sequence) && sequence < below && (!newest || sequence > best)) {{
        newest = &slots[i];
        best = sequence;
      }}
    if (!newest) return status ? status : {MACRO}_EFORMAT;
    status = load_by_name(ctx, newest->read, newest->user, absent, report);
    if (status != {MACRO}_ECRC && status != {MACRO}_EIO && status != {MACRO}_EFORMAT) return status;
    below = best; /* damaged between two readings: an older one may be sound */
  }}
}}"""
