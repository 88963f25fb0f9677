/* The serial port: UART 0 of Arm's MPS2 boards, standard output on a computer. */
#include "serial.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __arm__
static volatile uint32_t *const uart = (volatile uint32_t *)0x40004000u; /* CMSDK APB UART */
enum { DATA = 0, STATE = 1, CONTROL = 2, BAUD_DIVIDER = 4 };

static void put(char c) {
  while (uart[STATE] & 1u) { /* the transmit buffer is full */
  }
  uart[DATA] = (uint8_t)c;
}

void serial_begin(void) {
  uart[BAUD_DIVIDER] = 217; /* 115,200 baud of 25 MHz */
  uart[CONTROL] = 1;        /* transmit */
}
#else
static void put(char c) { putchar(c); }

void serial_begin(void) { setvbuf(stdout, NULL, _IOLBF, 256); }
#endif

void say(const char *format, ...) {
  char line[160];
  va_list values;
  va_start(values, format);
  vsnprintf(line, sizeof line, format, values);
  va_end(values);
  for (const char *c = line; *c; c++) put(*c);
}
