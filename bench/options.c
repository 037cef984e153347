#include "options.h"

#include "common.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t LONGEST = (size_t)1 << 30;

static const struct program *program;
static const char *sizes_text, *time_text;
static bool no_pin, help;

/* For programs that measure one size after another. */
static const struct option sized_options[] = {
    {"--size", "SIZES", "bytes: a range that doubles (8..64K), a list (8,1K,1M), or both", .text = &sizes_text},
    {"--time", "SECONDS", "how long each figure is measured (0.5)", .text = &time_text},
    {0},
};
static const struct option common_options[] = {
    {"--json", NULL, "print one JSON object a line", .flag = &settings.json},
    {"--no-pin", NULL, "leave it to the system on which CPU each rank runs", .flag = &no_pin},
    {"--help", NULL, "print this", .flag = &help},
    {0},
};

void misused(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (rank == 0) {
        fprintf(stderr, "%s: ", program->name);
        vfprintf(stderr, format, arguments);
        fprintf(stderr, "\n");
    }
    va_end(arguments);
    MPI_Finalize();
    exit(2);
}

static void print_options(const struct option *option)
{
    for (; option && option->name; option++)
        printf("  %-9s %-9s %s\n", option->name, option->value ? option->value : "", option->help);
}

static _Noreturn void print_help(void)
{
    if (rank == 0) {
        printf("%s\n\nOptions:\n", program->about);
        print_options(program->options);
        if (program->sizes)
            print_options(sized_options);
        print_options(common_options);
        if (program->sizes)
            printf("\nWithout --size it takes %s. K, M and G are powers of 1024.\n", program->sizes);
    }
    MPI_Finalize();
    exit(0);
}

static const struct option *find(const struct option *option, const char *name)
{
    for (; option && option->name; option++)
        if (strcmp(option->name, name) == 0)
            return option;
    return NULL;
}

/* Finds out what each argument means. */
static void take(char **argument)
{
    for (; *argument; argument++) {
        const struct option *option = find(common_options, *argument);
        if (!option && program->sizes)
            option = find(sized_options, *argument);
        if (!option)
            option = find(program->options, *argument);
        if (!option)
            misused("there is no option %s; --help lists all", *argument);
        if (option->flag) {
            *option->flag = true;
            continue;
        }
        const char *value = *++argument;
        if (!value)
            misused("%s needs a value: write %s %s", option->name, option->name, option->value);
        if (option->text) {
            *option->text = value;
        } else {
            char *rest;
            long number = strtol(value, &rest, 10);
            if (*rest || number < 1 || number > INT_MAX)
                misused("%s %s: write a whole number from 1 on", option->name, value);
            *option->number = (int)number;
        }
    }
}

/* Reads a size from the text and moves behind it; false where there is none. */
static bool read_size(const char **text, size_t *size)
{
    static const char units[] = "KMG";
    char *rest;
    if (**text < '0' || **text > '9')
        return false;
    unsigned long long number = strtoull(*text, &rest, 10);
    const char *unit = *rest ? strchr(units, *rest) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    *text = unit ? rest + 1 : rest;
    *size = (size_t)number << shift;
    return number <= LONGEST >> shift;
}

static void read_sizes(const char *text)
{
    const char *at = text;
    do {
        size_t first, last;
        bool good = read_size(&at, &first);
        last = first;
        if (good && strncmp(at, "..", 2) == 0) {
            at += 2;
            good = read_size(&at, &last);
        }
        if (!good || (*at && *at != ','))
            misused("--size %s: write sizes up to 1G, such as --size 8..64K or --size 8,1K,1M", text);
        if (last < first)
            misused("--size %s: a range begins with the smaller size, such as --size 8..64K", text);
        for (size_t size = first; size <= last; size = size ? 2 * size : 1) {
            if (settings.size_count == SIZES_MAX)
                misused("--size %s: at most %d sizes can be measured at once", text, SIZES_MAX);
            settings.sizes[settings.size_count++] = size;
        }
    } while (*at++ == ',');
}

static void read_time(const char *text)
{
    char *rest;
    settings.seconds = strtod(text, &rest);
    if (rest == text || *rest || !(settings.seconds > 0 && settings.seconds <= 3600))
        misused("--time %s: write seconds above 0, such as --time 0.5", text);
}

void read_options(const struct program *started, char **arguments)
{
    program = started;
    take(arguments);
    if (help)
        print_help();
    if (time_text)
        read_time(time_text);
    if (program->sizes)
        read_sizes(sizes_text ? sizes_text : program->sizes);
    settings.pin = !no_pin;
    for (int at = 0; at < settings.size_count; at++)
        if (settings.sizes[at] > settings.longest)
            settings.longest = settings.sizes[at];
}
