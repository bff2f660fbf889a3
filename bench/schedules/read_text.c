/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading the text of a schedule, for tutti_sched and tutti_exec. See read_text.h. */
#include "schedules/read_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TEXT ((size_t)1 << 30)

char *read_text(const char *path)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    size_t room = (size_t)1 << 16, used = 0, n;
    char *text = file != NULL ? malloc(room) : NULL, *more;
    int error = 0;

    while (text != NULL && (n = fread(text + used, 1, room - used - 1, file)) > 0) {
        used += n;
        if (used < room - 1)
            continue;
        more = room < MOST_TEXT ? realloc(text, 2 * room) : NULL;
        if (more == NULL) {
            error = EFBIG;
            free(text);
        }
        text = more;
        room *= 2;
    }
    if (text != NULL && ferror(file)) {
        error = errno;
        free(text);
        text = NULL;
    }
    if (text != NULL)
        text[used] = '\0';
    if (file != NULL && file != stdin)
        fclose(file);
    if (error != 0)
        errno = error;
    return text;
}
