/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading tuned files; see tuned.h. Called by tutti_init, on its thread.
 *
 * No error here ends a job: the caller gets a text that describes the error, and continues without
 * the file.
 */
#include "conf/tuned.h"

#include "conf/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char version_name[] = "tutti_tuned";

/* ---- text ---- */

typedef struct {
    const char *at, *end;
    unsigned line;
    char *why;
    size_t capacity;
} reader_t;

static int complain(const reader_t *in, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int complain(const reader_t *in, const char *fmt, ...)
{
    int used = snprintf(in->why, in->capacity, "line %u: ", in->line > 0 ? in->line : 1);
    va_list args;

    va_start(args, fmt);
    if (used >= 0 && (size_t)used < in->capacity)
        vsnprintf(in->why + used, in->capacity - (size_t)used, fmt, args);
    va_end(args);
    return 0;
}

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Is the character printable ASCII, but not a space? Only such words are quoted in the log. */
static int is_plain(char c)
{
    return c > ' ' && c < 0x7f;
}

/* Read the next word of the line; "" at its end. Returns 0 if the word is too long, or not text. */
static int take_word(reader_t *in, char ret_word[TUTTI__TUNED_WORD])
{
    size_t n = 0;

    while (in->at < in->end && is_blank(*in->at))
        in->at++;
    while (in->at < in->end && *in->at != '\n' && *in->at != '#' && !is_blank(*in->at)) {
        if (!is_plain(*in->at))
            return complain(in, "not a text file");
        if (n == TUTTI__TUNED_WORD - 1)
            return complain(in, "%.*s...: longer than %d letters", TUTTI__TUNED_WORD - 1, ret_word,
                            TUTTI__TUNED_WORD - 1);
        ret_word[n++] = *in->at++;
        ret_word[n] = '\0';
    }
    ret_word[n] = '\0';
    return 1;
}

/* Read the two words of a line, both "" if the line is empty. Then move to the next line. */
static int take_line(reader_t *in, tutti__tuned_entry_t *ret_entry)
{
    char more[TUTTI__TUNED_WORD];

    in->line++;
    if (!take_word(in, ret_entry->name) || !take_word(in, ret_entry->value) || !take_word(in, more))
        return 0;
    if ((ret_entry->name[0] != '\0' && ret_entry->value[0] == '\0') || more[0] != '\0')
        return complain(in, "want NAME VALUE");
    ret_entry->line = in->line;
    while (in->at < in->end && *in->at++ != '\n') {
    }
    return 1;
}

static int check_version(const reader_t *in, const tutti__tuned_entry_t *entry)
{
    uint64_t version;

    if (strcmp(entry->name, version_name) != 0 || !tutti__parse_count(entry->value, &version))
        return complain(in, "want \"%s %d\" first", version_name, TUTTI__TUNED_VERSION);
    if (version != TUTTI__TUNED_VERSION)
        return complain(in, "version %" PRIu64 "; this library reads %d", version,
                        TUTTI__TUNED_VERSION);
    return 1;
}

static int add(const reader_t *in, const tutti__tuned_entry_t *entry, tutti__tuned_t *tuned)
{
    for (size_t i = 0; i < tuned->count; i++)
        if (strcmp(entry->name, tuned->entry[i].name) == 0)
            return complain(in, "%s stands in line %u already", entry->name, tuned->entry[i].line);
    if (tuned->count == TUTTI__TUNED_MOST)
        return complain(in, "more than %d settings", TUTTI__TUNED_MOST);
    tuned->entry[tuned->count++] = *entry;
    return 1;
}

int tutti__tuned_parse(const char *text, size_t bytes, tutti__tuned_t *ret_tuned, char *ret_why,
                       size_t capacity)
{
    reader_t in = { .at = text, .end = text + bytes, .why = ret_why, .capacity = capacity };
    tutti__tuned_entry_t entry;
    int version = 0;

    ret_tuned->count = 0;
    if (bytes > TUTTI__TUNED_BYTES)
        return complain(&in, "longer than %d bytes", TUTTI__TUNED_BYTES);
    while (in.at < in.end) {
        if (!take_line(&in, &entry))
            return 0;
        if (entry.name[0] == '\0')
            continue;
        if (version ? !add(&in, &entry, ret_tuned) : !check_version(&in, &entry))
            return 0;
        version = 1;
    }
    return version || complain(&in, "want \"%s %d\" first", version_name, TUTTI__TUNED_VERSION);
}

enum {
    NOT_OPENED = -1,
    NOT_READ = -2
};

/* Read up to `capacity` bytes. Returns the number of bytes. After an error: returns NOT_OPENED or
   NOT_READ, and sets errno. */
static ssize_t read_file(const char *path, char *ret_text, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), saved_errno;
    size_t used = 0;
    ssize_t n;

    if (fd < 0)
        return NOT_OPENED;
    do {
        n = read(fd, ret_text + used, capacity - used);
        used += n > 0 ? (size_t)n : 0;
    } while ((n > 0 && used < capacity) || (n < 0 && errno == EINTR));
    saved_errno = errno;
    close(fd);
    errno = saved_errno;
    return n < 0 ? NOT_READ : (ssize_t)used;
}

int tutti__tuned_read(const char *path, tutti__tuned_t *ret_tuned, int *ret_closed, char *ret_why,
                      size_t capacity)
{
    char text[TUTTI__TUNED_BYTES + 1]; /* one byte more, to detect a longer file */
    ssize_t bytes = read_file(path, text, sizeof(text));

    *ret_closed = bytes == NOT_OPENED ? errno : 0;
    if (bytes < 0) {
        snprintf(ret_why, capacity, "%s", strerror(errno));
        return 0;
    }
    return tutti__tuned_parse(text, (size_t)bytes, ret_tuned, ret_why, capacity);
}

/* ---- this machine ---- */

/* Read the beginning of a small file of /proc or /sys as text; "" if the file cannot be read. */
static void read_fact(const char *root, const char *path, char *ret_text, size_t capacity)
{
    char full[TUTTI__TUNED_PATH];
    ssize_t n;

    snprintf(full, sizeof(full), "%s%s", root, path);
    n = read_file(full, ret_text, capacity - 1);
    ret_text[n < 0 ? 0 : n] = '\0';
}

/* Append to a file's name. All characters except letters, digits, '.', '-' and '_' become '_'. */
static void append(char name[TUTTI__TUNED_NAME], const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void append(char name[TUTTI__TUNED_NAME], const char *fmt, ...)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    size_t used = strlen(name);
    va_list args;

    va_start(args, fmt);
    vsnprintf(name + used, TUTTI__TUNED_NAME - used, fmt, args);
    va_end(args);
    for (; name[used] != '\0'; used++)
        if (strchr(plain, name[used]) == NULL)
            name[used] = '_';
}

/* Find the first processor's value of a field, as in "model name : AMD EPYC"; "": no such field. */
static void find_field(const char *cpuinfo, const char *field, char *ret_value, size_t capacity)
{
    size_t length = strlen(field);

    ret_value[0] = '\0';
    for (const char *line = cpuinfo; line != NULL; line = strchr(line, '\n')) {
        const char *colon;

        line += *line == '\n';
        if (strncmp(line, field, length) != 0)
            continue;
        colon = line + length + strspn(line + length, " \t");
        if (*colon != ':')
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(ret_value, capacity, "%.*s", (int)strcspn(colon, "\n"), colon);
        return;
    }
}

/*
 * Append the kernel's name of the processor. A hypervisor may show the same name on all its
 * machines, so on x86 the family and the model are added. On Arm the kernel has only numbers. Only
 * the first page of cpuinfo is read, because this page has the first processor, and because the
 * kernel takes time to write the text of each further processor.
 */
static void name_processor(const char *root, char name[TUTTI__TUNED_NAME])
{
    static const char *const fields[] = { "model name",      "cpu family", "model",
                                          "CPU implementer", "CPU part",   "cpu" };
    char cpuinfo[4096], value[64];

    read_fact(root, "/proc/cpuinfo", cpuinfo, sizeof(cpuinfo));
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        find_field(cpuinfo, fields[i], value, sizeof(value));
        if (value[0] != '\0')
            append(name, "%s%s", name[0] == '\0' ? "" : "-", value);
    }
    if (name[0] == '\0')
        append(name, "processor");
}

/* The number of processors in a list of the kernel: "0-3,8" has 5. */
static unsigned long count_list(const char *list)
{
    unsigned long count = 0;

    while (*list >= '0' && *list <= '9') {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;

        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        count += last >= first ? last - first + 1 : 0;
        list = *end == ',' ? end + 1 : end;
    }
    return count;
}

/* Read the line of a file that describes a cache of the first processor. */
static void read_cache(const char *root, int index, const char *what, char *ret_text,
                       size_t capacity)
{
    char path[96];

    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, what);
    read_fact(root, path, ret_text, capacity);
    ret_text[strcspn(ret_text, "\n")] = '\0';
}

/* Append the first processor's caches from the second level on: "-L2_1024K-L3_32768K". */
static void name_caches(const char *root, char name[TUTTI__TUNED_NAME])
{
    char level[16], size[16];

    for (int i = 0; i < 8; i++) {
        read_cache(root, i, "level", level, sizeof(level));
        if (level[0] == '\0')
            break;
        if (strcmp(level, "1") == 0)
            continue;
        read_cache(root, i, "size", size, sizeof(size));
        append(name, "-L%s_%s", level, size);
    }
}

void tutti__tuned_name(const char *root, uint64_t ranks, char ret_name[TUTTI__TUNED_NAME])
{
    char online[1024], tail[24];
    size_t most;

    ret_name[0] = '\0';
    name_processor(root, ret_name);
    read_fact(root, "/sys/devices/system/cpu/online", online, sizeof(online));
    append(ret_name, "-%lucpus", count_list(online));
    name_caches(root, ret_name);
    /* If the name is too long, cut it before the number of ranks. */
    snprintf(tail, sizeof(tail), "-%" PRIu64 "ranks", ranks % 100000000);
    most = TUTTI__TUNED_NAME - 1 - strlen(tail);
    if (strlen(ret_name) > most)
        ret_name[most] = '\0';
    append(ret_name, "%s", tail);
}

int tutti__tuned_path(uint64_t ranks, char ret_path[TUTTI__TUNED_PATH])
{
    const char *config = secure_getenv("XDG_CONFIG_HOME"), *home = secure_getenv("HOME");
    const char *below = "";
    char name[TUTTI__TUNED_NAME];
    int n;

    if (config == NULL || config[0] != '/') { /* by the XDG standard a relative path is ignored */
        config = home;
        below = "/.config";
    }
    if (config == NULL || config[0] != '/')
        return 0;
    tutti__tuned_name("", ranks, name);
    n = snprintf(ret_path, TUTTI__TUNED_PATH, "%s%s/tutti/tuned/%s", config, below, name);
    return n > 0 && n < TUTTI__TUNED_PATH;
}
