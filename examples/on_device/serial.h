#ifndef SERIAL_H
#define SERIAL_H

void serial_begin(void);
/* As printf, at most 159 characters. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
