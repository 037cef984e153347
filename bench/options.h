/* For common.c: reads the options of a program into `settings`. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

struct program;

void read_options(const struct program *program, char **arguments);

#endif
