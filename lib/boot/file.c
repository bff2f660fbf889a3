/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends a file or a text of rank 0 to all ranks during the set-up of a communicator. See boot.h.
 *
 * A way to meet (tutti__meet_t) has an allgather, but no broadcast. So every rank passes pieces of
 * the same length to the allgather, and only rank 0's pieces are used. The texts are small and few,
 * so a broadcast would not be worth its code.
 */
#include "boot/boot_inside.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES ((size_t)16 << 20)
#define PIECE ((size_t)8 << 10)

static tutti_status_t unreadable(const char *path, const char *why)
{
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_ALGORITHM: cannot read \"%.300s\": %s",
                       path, why);
}

/* Read a whole file whose size was `bytes` when it was opened. The size may have changed. */
static tutti_status_t read_whole(int fd, const char *path, size_t bytes, char **ret_text)
{
    char *text = malloc(bytes + 1);
    size_t used = 0;

    if (text == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu bytes of a file", bytes);
    while (used < bytes) {
        ssize_t n = read(fd, text + used, bytes - used);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            free(text);
            return unreadable(path, strerror(errno));
        }
        if (n == 0)
            break;
        used += (size_t)n;
    }
    text[used] = '\0';
    if (strlen(text) < used) {
        free(text);
        return unreadable(path, "it is no text");
    }
    *ret_text = text;
    return TUTTI_OK;
}

static tutti_status_t read_file(const char *path, char **ret_text)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    tutti_status_t status;
    struct stat info;

    if (fd < 0)
        return unreadable(path, strerror(errno));
    if (fstat(fd, &info) != 0)
        status = unreadable(path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = unreadable(path, "it is no file");
    else if ((uint64_t)info.st_size > MOST_BYTES)
        status = unreadable(path, "it is longer than 16 MiB");
    else
        status = read_whole(fd, path, (size_t)info.st_size, ret_text);
    close(fd);
    return status;
}

/* Send the length of rank 0's text to all ranks. */
static tutti_status_t tell_length(tutti__boot_t *boot, size_t mine, size_t *ret_bytes)
{
    uint64_t own = mine, *all = calloc(boot->meet.size, sizeof(*all));
    tutti_status_t status = TUTTI_OK;

    if (all == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "lengths from %u ranks", boot->meet.size);
    status = tutti__boot_agree(boot, status);
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(boot, &own, sizeof(own), all);
    if (status == TUTTI_OK)
        *ret_bytes = (size_t)all[0];
    free(all);
    return status;
}

static tutti_status_t send_pieces(tutti__boot_t *boot, char *text, size_t bytes, char *all)
{
    tutti_status_t status = TUTTI_OK;

    for (size_t i = 0; i < bytes && status == TUTTI_OK; i += PIECE) {
        size_t n = TUTTI__MIN(PIECE, bytes - i);

        status = tutti__boot_allgather(boot, text + i, n, all);
        if (status == TUTTI_OK)
            memcpy(text + i, all, n);
    }
    return status;
}

tutti_status_t tutti__boot_send_text(tutti__boot_t *boot, char *text, size_t bytes)
{
    char *all = malloc(boot->meet.size * TUTTI__MIN(PIECE, bytes + 1));
    tutti_status_t status = TUTTI_OK;

    if (all == NULL || text == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu bytes of a text of rank 0", bytes);
    status = tutti__boot_agree(boot, status);
    if (status == TUTTI_OK)
        status = send_pieces(boot, text, bytes, all);
    free(all);
    return status;
}

tutti_status_t tutti__boot_read_file(tutti__boot_t *boot, const char *path, char **ret_text)
{
    char *text = NULL;
    size_t bytes = 0;
    tutti_status_t status = TUTTI_OK;

    if (boot->meet.rank == 0)
        status = read_file(path, &text);
    status = tutti__boot_agree(boot, status);
    if (status == TUTTI_OK)
        status = tell_length(boot, text != NULL ? strlen(text) : 0, &bytes);
    if (status == TUTTI_OK) {
        if (text == NULL)
            text = calloc(bytes + 1, 1);
        status = tutti__boot_send_text(boot, text, bytes);
    }
    if (status != TUTTI_OK) {
        free(text);
        return status;
    }
    *ret_text = text;
    return TUTTI_OK;
}
