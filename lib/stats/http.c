/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The endpoint's part of HTTP: one kind of request, GET /metrics, on 127.0.0.1.
 *
 * A connection is closed after its answer, so there is one request per connection, and no state
 * between requests. The parser reads method, path and version on the first line, and finds the
 * empty line that ends the head. It reads no header. The parser is a pure function, so that tests
 * can call it.
 */
#include "stats/stats_inside.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int tutti__http_listen(int port)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, error;

    if (fd < 0)
        return -1;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    /* Connections of a job that has just ended must not block the port. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0 &&
        listen(fd, TUTTI__HTTP_CLIENTS) == 0)
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* ---- requests ---- */

/* Does the text begin with `word`? */
static int begins(const char *text, size_t bytes, const char *word)
{
    return bytes >= strlen(word) && memcmp(text, word, strlen(word)) == 0;
}

/* The end of the head's first line; NULL: the line is not complete. *ret_complete: the whole head
   has arrived. */
static const char *first_line(const char *request, size_t bytes, int *ret_complete)
{
    const char *end = memchr(request, '\n', bytes), *line = end;

    *ret_complete = 0;
    while (line != NULL && !*ret_complete) {
        size_t left = bytes - (size_t)(line + 1 - request);

        *ret_complete = begins(line + 1, left, "\n") || begins(line + 1, left, "\r\n");
        line = memchr(line + 1, '\n', left);
    }
    return end;
}

static tutti__http_asks_t parse_line(const char *line, size_t bytes)
{
    const char *path = memchr(line, ' ', bytes), *version;
    size_t path_bytes;

    if (bytes > 0 && line[bytes - 1] == '\r')
        bytes--;
    if (path == NULL)
        return TUTTI__HTTP_BAD;
    path++;
    version = memchr(path, ' ', bytes - (size_t)(path - line));
    if (version == NULL || path[0] != '/' ||
        !begins(version + 1, bytes - (size_t)(version + 1 - line), "HTTP/1."))
        return TUTTI__HTTP_BAD;
    if (!begins(line, bytes, "GET "))
        return TUTTI__HTTP_METHOD;
    path_bytes = (size_t)(version - path);
    if (begins(path, path_bytes, "/metrics") && (path_bytes == 8 || path[8] == '?'))
        return TUTTI__HTTP_METRICS;
    return TUTTI__HTTP_NOT_FOUND;
}

tutti__http_asks_t tutti__http_parse(const char *request, size_t bytes, int is_full)
{
    int is_complete = 0;
    const char *end = first_line(request, bytes, &is_complete);

    if (memchr(request, '\0', bytes) != NULL)
        return TUTTI__HTTP_BAD;
    if (is_complete)
        return parse_line(request, (size_t)(end - request));
    return is_full ? TUTTI__HTTP_BAD : TUTTI__HTTP_MORE;
}

/* ---- answers ---- */

void tutti__http_answer(tutti__http_asks_t asks, const tutti__stats_text_t *metrics,
                        tutti__stats_text_t *answer)
{
    static const struct {
        const char *status, *body;
    } texts[] = {
        [TUTTI__HTTP_MORE] = { "408 Request Timeout", "the request is not complete\n" },
        [TUTTI__HTTP_METRICS] = { "200 OK", "" },
        [TUTTI__HTTP_NOT_FOUND] = { "404 Not Found", "there is only /metrics\n" },
        [TUTTI__HTTP_METHOD] = { "405 Method Not Allowed", "there is only GET\n" },
        [TUTTI__HTTP_BAD] = { "400 Bad Request", "the request is not understood\n" },
    };
    const char *body = asks == TUTTI__HTTP_METRICS ? metrics->at : texts[asks].body;

    tutti__stats_append(answer,
                        "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                        "%sContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
                        texts[asks].status, asks == TUTTI__HTTP_METHOD ? "Allow: GET\r\n" : "",
                        strlen(body), body);
}
