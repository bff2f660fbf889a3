/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a command on a separate terminal, 80 columns wide, and presses Ctrl-C there.
 *
 * usage: terminal OUT GO COMMAND...
 *
 * OUT receives all output of the command. Whenever the file GO exists, it is removed and Ctrl-C is
 * pressed. In the end the program prints how the command ended: "exit 130", "signal 2". After
 * LIMIT_SECONDS the command is killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* Chosen: in tests/trainer/interrupt.sh, mpirun needs 60 s to end its ranks. Under ASan and beside
   other tests, the epoch before that took 62 s. */
#define LIMIT_SECONDS 600
#define LOOK_MS 20

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* Copy the command's output until its terminal is closed. */
static void serve(int terminal, int out, const char *go, pid_t pid)
{
    const time_t end = time(NULL) + LIMIT_SECONDS;
    char bytes[4096];

    for (;;) {
        struct pollfd reader = { .fd = terminal, .events = POLLIN };

        if (time(NULL) > end)
            kill(pid, SIGKILL);
        if (access(go, F_OK) == 0) {
            if (write(terminal, "\003", 1) != 1)
                fail("Ctrl-C");
            unlink(go);
        }
        if (poll(&reader, 1, LOOK_MS) <= 0)
            continue;
        const ssize_t got = read(terminal, bytes, sizeof(bytes));
        if (got <= 0)
            return; /* EIO: all processes have closed the terminal */
        if (write(out, bytes, (size_t)got) != got)
            fail("writing OUT");
    }
}

int main(int argc, char **argv)
{
    const struct winsize size = { .ws_row = 24, .ws_col = 80 };
    int terminal, status;

    if (argc < 4)
        return 2;
    const int out = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out < 0)
        fail(argv[1]);
    const pid_t pid = forkpty(&terminal, NULL, NULL, &size);
    if (pid < 0)
        fail("forkpty");
    if (pid == 0) {
        struct termios modes;

        /* without NOFLSH, Ctrl-C discards unread output, even in the middle of a line */
        if (tcgetattr(STDIN_FILENO, &modes) != 0)
            fail("tcgetattr");
        modes.c_lflag |= NOFLSH;
        if (tcsetattr(STDIN_FILENO, TCSANOW, &modes) != 0)
            fail("tcsetattr");

        /* a shell lets its background jobs ignore these signals */
        signal(SIGINT, SIG_DFL);
        signal(SIGQUIT, SIG_DFL);
        execvp(argv[3], argv + 3);
        fail(argv[3]);
    }

    serve(terminal, out, argv[2], pid);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            fail("waitpid");
    if (WIFEXITED(status))
        printf("exit %d\n", WEXITSTATUS(status));
    else
        printf("signal %d\n", WTERMSIG(status));
    return 0;
}
