/* Preloaded before the C library: counts what is allocated between start and stop. */

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static atomic_size_t total_bytes, largest_bytes;
static atomic_int is_counting;

static void count(size_t size) {
    if (!is_counting) return;
    total_bytes += size;
    size_t largest = largest_bytes;
    while (size > largest && !atomic_compare_exchange_weak(&largest_bytes, &largest, size)) {}
}

void start_counting(void) {
    total_bytes = largest_bytes = 0;
    is_counting = 1;
}

void stop_counting(void) { is_counting = 0; }
size_t counted_total_bytes(void) { return total_bytes; }
size_t counted_largest_bytes(void) { return largest_bytes; }

void *malloc(size_t size) {
    count(size);
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
    count(number * size);
    return __libc_calloc(number, size);
}

void *realloc(void *old, size_t size) {
    count(size);
    return __libc_realloc(old, size);
}

void *memalign(size_t alignment, size_t size) {
    count(size);
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **made, size_t alignment, size_t size) {
    *made = memalign(alignment, size);
    return *made ? 0 : ENOMEM;
}
