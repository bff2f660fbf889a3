/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links with a delay, for cluster.sh: cluster_relay DELAY_US HOSTS
 *
 * Makes two TAP devices for each host, host1 and port1 to hostK and portK, and carries Ethernet
 * frames between the two. A frame from a host is held for the delay, and a frame to a host is not
 * held. So a frame from one host to another is delayed once. Prints "ready" once the devices exist.
 * Runs until it is killed; the devices disappear when it ends.
 *
 *     host's stack -> host1 -> read, queue of frames and times -> write -> port1 -> bridge
 *
 * The devices pass segments of 64 KiB whose checksums are not computed yet (IFF_VNET_HDR), as veth
 * does. The header before each frame describes how to complete the frame. The relay does not read
 * this header, but passes it on.
 *
 * One relay serves all links, because a frame that it writes to a port can be read from another
 * host's port at once. Tried: a relay for each link. Then a round trip with a delay of 1 ms in each
 * direction took 2.25 ms.
 */
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_HOSTS = 200,
    FRAME_BYTES = 1 << 17, /* more than a segment with its headers */
    QUEUE = 4096,          /* frames; the device drops frames that do not fit */
    AT_ONCE = 64           /* frames that are read before the due frames are written again */
};

typedef struct {
    uint64_t due_ns;
    int to; /* a device */
    size_t bytes;
    char *data;
} frame_t;

/* Frames in the order of their due times, which is the order of arrival: all have the same
   delay. */
static frame_t queue[QUEUE];
static size_t first, queued;

static char frame[FRAME_BYTES];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int open_tap(const char *kind, int host)
{
    struct ifreq request;
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        fail("/dev/net/tun");
    memset(&request, 0, sizeof(request));
    request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s%d", kind, host);
    if (ioctl(fd, TUNSETIFF, &request) != 0)
        fail(request.ifr_name);
    if (ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0)
        fail("TUNSETOFFLOAD");
    return fd;
}

/* A frame that a device does not accept is lost, as on a wire. */
static void put(int fd, const char *data, size_t bytes)
{
    ssize_t done = write(fd, data, bytes);

    (void)done;
}

static void pass(int from, int to)
{
    for (int i = 0; i < AT_ONCE; i++) {
        ssize_t bytes = read(from, frame, sizeof(frame));

        if (bytes <= 0)
            return;
        put(to, frame, (size_t)bytes);
    }
}

static void hold(int from, int to, uint64_t delay_ns)
{
    for (int i = 0; i < AT_ONCE && queued < QUEUE; i++) {
        ssize_t bytes = read(from, frame, sizeof(frame));
        frame_t *last = &queue[(first + queued) % QUEUE];

        if (bytes <= 0)
            return;
        last->data = malloc((size_t)bytes);
        if (last->data == NULL)
            return;
        memcpy(last->data, frame, (size_t)bytes);
        last->to = to;
        last->bytes = (size_t)bytes;
        last->due_ns = now_ns() + delay_ns;
        queued++;
    }
}

static void release(void)
{
    while (queued > 0 && queue[first].due_ns <= now_ns()) {
        put(queue[first].to, queue[first].data, queue[first].bytes);
        free(queue[first].data);
        first = (first + 1) % QUEUE;
        queued--;
    }
}

/* Waits for frames, or until the first held frame is due. */
static void wait_for(struct pollfd *fds, int count)
{
    uint64_t now = now_ns(), due = queued > 0 ? queue[first].due_ns : now;
    uint64_t left = due > now ? due - now : 0;
    struct timespec wait = { (time_t)(left / 1000000000), (long)(left % 1000000000) };

    if (ppoll(fds, (nfds_t)count, queued > 0 ? &wait : NULL, NULL) < 0)
        fail("ppoll");
}

/* fds: the devices of each host, host and port */
static void relay(struct pollfd *fds, int hosts, uint64_t delay_ns)
{
    for (;;) {
        /* If the queue is full, frames stay in the devices. */
        for (int i = 0; i < hosts; i++)
            fds[2 * i].events = queued < QUEUE ? POLLIN : 0;
        wait_for(fds, 2 * hosts);
        for (int i = 0; i < hosts; i++) {
            if (fds[2 * i].revents & POLLIN)
                hold(fds[2 * i].fd, fds[2 * i + 1].fd, delay_ns);
            if (fds[2 * i + 1].revents & POLLIN)
                pass(fds[2 * i + 1].fd, fds[2 * i].fd);
        }
        release();
    }
}

int main(int argc, char **argv)
{
    struct sched_param param = { .sched_priority = 1 };
    struct pollfd fds[2 * MOST_HOSTS];
    int hosts = argc == 3 ? atoi(argv[2]) : 0;

    if (hosts < 1 || hosts > MOST_HOSTS) {
        fprintf(stderr, "usage: cluster_relay DELAY_US HOSTS\n");
        return 2;
    }
    /* Frames should be late only by the delay, even if ranks keep all processors busy. If the
       kernel refuses, the delay is less exact. */
    sched_setscheduler(0, SCHED_FIFO, &param);
    prctl(PR_SET_TIMERSLACK, 1);
    for (int i = 0; i < hosts; i++) {
        fds[2 * i] = (struct pollfd){ open_tap("host", i + 1), POLLIN, 0 };
        fds[2 * i + 1] = (struct pollfd){ open_tap("port", i + 1), POLLIN, 0 };
    }
    puts("ready");
    fclose(stdout);
    relay(fds, hosts, strtoull(argv[1], NULL, 10) * 1000);
    return 0;
}
