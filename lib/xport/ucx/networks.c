/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Logs the networks that UCX has chosen for an endpoint. UCX 1.13 has no function that returns the
 * networks, so they are read from the text of ucp_ep_print_info. The text has lines such as
 *
 *      #                 lane[0]:  1:tcp/eth0.0 md[1]    -> md[1]/tcp/sysdev[255] am am_bw#0 wireup
 */
#include "xport/ucx/ucx_module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns 1 if the name is in the list, which has ", " between names. */
static int has_name(const char *list, const char *name)
{
    size_t bytes = strlen(name);

    for (const char *at = strstr(list, name); at != NULL; at = strstr(at + 1, name))
        if ((at == list || at[-1] == ' ') && (at[bytes] == '\0' || at[bytes] == ','))
            return 1;
    return 0;
}

/* Take "tcp/eth0" from a line such as the line above. Returns 0 if the line has no lane. */
static int read_lane(char *line, const char **ret_name)
{
    char *at = strstr(line, "lane["), *end;

    at = at != NULL ? strchr(at, ':') : NULL;
    at = at != NULL ? strchr(at + 1, ':') : NULL;
    if (at == NULL)
        return 0;
    at++;
    end = at + strcspn(at, " \n");
    *end = '\0';
    /* UCX appends the number of the path, as in ".0": remove it. */
    while (end > at && end[-1] >= '0' && end[-1] <= '9')
        end--;
    if (end > at && end[-1] == '.')
        end[-1] = '\0';
    *ret_name = at;
    return *at != '\0';
}

/* Write the names of the networks into `list`, without names that do not fit. text: the output of
   ucp_ep_print_info; this function changes it. */
static void list_networks(char *text, char *list, size_t bytes)
{
    const char *name;
    char *saved, *line = strtok_r(text, "\n", &saved);
    size_t used = 0;

    list[0] = '\0';
    for (; line != NULL; line = strtok_r(NULL, "\n", &saved)) {
        if (!read_lane(line, &name) || has_name(list, name) ||
            used + strlen(name) + sizeof(", ") > bytes)
            continue;
        used += (size_t)snprintf(list + used, bytes - used, "%s%s", used > 0 ? ", " : "", name);
    }
}

void tutti__ucx_log_networks(tutti__log_level_t level, ucp_ep_h ep, uint32_t peer)
{
    char *text = NULL, list[256];
    size_t bytes;
    FILE *file;

    if (!tutti__ucx_log_on(level))
        return;
    file = open_memstream(&text, &bytes);
    if (file == NULL)
        return;
    ucp_ep_print_info(ep, file);
    if (fclose(file) == 0) {
        list_networks(text, list, sizeof(list));
        tutti__ucx_log(level, "ucx: messages to rank %u use %s", peer,
                       list[0] != '\0' ? list : "an unknown network");
    }
    free(text);
}
