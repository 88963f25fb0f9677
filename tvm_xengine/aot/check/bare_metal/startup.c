/* Start-up of a Cortex-M under qemu: memory, floating-point unit, main, exit by semihosting. */
#include <stdint.h>

extern uint32_t xe_data_load, xe_data_start, xe_data_end, xe_bss_start, xe_bss_end, xe_stack_top;
int main(void);

#ifdef XE_SEMIHOSTING_FILES
void initialise_monitor_handles(void);
#endif

static void semihosting(uint32_t operation, const void *argument) {
  register uint32_t r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

static void stop(int code) {
  const uint32_t block[2] = {0x20026, (uint32_t)code}; /* ADP_Stopped_ApplicationExit */
  semihosting(0x20, block);                            /* SYS_EXIT_EXTENDED */
  for (;;) {
  }
}

static void fault(void) { stop(99); }

#ifdef XE_COUNT_INSTRUCTIONS
/* With -icount shift=0 an instruction takes a nanosecond, and the timer ticks at 25 MHz. */
static volatile uint32_t wraps;
static void tick(void) { wraps++; }
static volatile uint32_t *const systick = (volatile uint32_t *)0xe000e010;

uint64_t xe_instructions(void) {
  uint32_t before, value;
  do {
    before = wraps;
    value = systick[2];
  } while (before != wraps);
  return 40ull * ((uint64_t)before * 0x1000000u + (0xffffffu - value));
}
#else
static void tick(void) { stop(98); }
#endif

void reset(void) {
  uint32_t *from = &xe_data_load, *to = &xe_data_start;
  while (to < &xe_data_end) *to++ = *from++;
  for (to = &xe_bss_start; to < &xe_bss_end; to++) *to = 0;
#ifdef __ARM_FP
  *(volatile uint32_t *)0xe000ed88 |= 0xfu << 20; /* CPACR: allow coprocessors 10 and 11 */
  __asm__ volatile("dsb\n\tisb");
#endif
#ifdef XE_SEMIHOSTING_FILES
  initialise_monitor_handles();
#endif
#ifdef XE_COUNT_INSTRUCTIONS
  systick[1] = 0xffffff;
  systick[2] = 0;
  systick[0] = 7;
#endif
  stop(main());
}

typedef void (*handler)(void);
__attribute__((section(".vectors"), used)) static const handler vectors[16] = {
    (handler)&xe_stack_top, reset, fault, fault, fault, fault, fault, fault,
    fault, fault, fault, fault, fault, fault, fault, tick};
