/* Two slots of flash memory. Here a slot is a file that outlives the emulator; on a board this file's functions are
   those of the flash driver. */
#ifndef FLASH_H
#define FLASH_H

#include <stdint.h>
#include <stdio.h>

#include "model.h"

enum { NUM_SLOTS = 2 };

typedef struct {
  char letter;
  FILE *file;
  size_t used;      /* bytes written since it was erased */
  uint32_t erased;  /* how often, since the start */
} flash;

/* Opens the slots, and reads from `power.txt`, if there is one, during which save power fails, and after how many of
   its bytes. 0, or the letter of a slot that cannot be opened. */
int flash_begin(flash memory[NUM_SLOTS], model_slot slots[NUM_SLOTS]);

#endif
