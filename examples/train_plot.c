/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes a gnuplot script with the data, and runs gnuplot to make an SVG or PNG file.
 *
 * Script and drawing are in files without names, which are gnuplot's stdin and stdout. The drawing
 * is copied when it is complete, so an older drawing is not lost if gnuplot fails.
 *
 * Rejected: popen. It uses a shell, whose "not found" cannot be distinguished from other failures,
 * and if gnuplot ends early, SIGPIPE kills the writer.
 */
#include "train_plot.h"

#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The kinds of files, by the end of their names. A PNG has the resolution of a screen of twice the
   usual density. */
static const struct {
    const char *ending;
    const char *terminal;
} formats[] = {
    { ".svg", "set terminal svg size 960,420 dynamic font 'Helvetica,Arial,sans-serif,14' "
              "background 'white'\n" },
    { ".png", "set terminal pngcairo size 1920,840 font 'Helvetica,14' fontscale 1.5 "
              "linewidth 2 pointscale 2 background 'white'\n" },
};

#define FORMAT_COUNT (sizeof(formats) / sizeof(formats[0]))

static const char script_head[] = "set style line 1 lc rgb '#0072b2' lw 2.5 pt 7 ps 0.6\n"
                                  "set style line 2 lc rgb '#d55e00' lw 2.5 pt 7 ps 0.6\n"
                                  "set border 3 lc rgb '#555555'\n"
                                  "set grid lc rgb '#dddddd' lt 1\n"
                                  "set tics nomirror\n"
                                  "set xlabel 'epoch'\n";

static const char script_tail[] = "set ylabel 'cross-entropy loss'\n"
                                  "set yrange [0:loss]\n"
                                  "set key top right\n"
                                  "plot $results using 1:2 with linespoints ls 1 title 'training',"
                                  " $results using 1:3 with linespoints ls 2 title 'test'\n"
                                  "set ylabel 'test accuracy'\n"
                                  "set yrange [least:most]\n"
                                  "set format y '%.3f'\n"
                                  "set key bottom right\n"
                                  "plot $results using 1:4 with linespoints ls 2 title 'test'\n"
                                  "unset multiplot\n";

/* Ranges that contain all numbers. They are never empty, which would be an error in gnuplot. */
static void write_ranges(FILE *script, const train_result_t *results, size_t count)
{
    double most_loss = 1e-3, least = 1.0, most = 0.0;

    for (size_t i = 0; i < count; i++) {
        most_loss = fmax(most_loss, fmax(results[i].train_loss, results[i].test_loss));
        least = fmin(least, results[i].test_accuracy);
        most = fmax(most, results[i].test_accuracy);
    }
    const double margin = fmax(0.01, 0.1 * (most - least));

    fprintf(script, "loss = %.9g\nleast = %.9g\nmost = %.9g\n",
            isfinite(most_loss) ? 1.05 * most_loss : 1.0, least - margin, most + margin);

    /* one epoch is a point, which needs a range around it; ticks are whole epochs, at most ten */
    fprintf(script, "set xrange [%s:%s]\n", count > 1 ? "1" : "0", count > 1 ? "*" : "2");
    fprintf(script, "set xtics %zu\n", count / 10 + 1);
}

/* The gnuplot command for the file type at the end of the path. NULL: no such type. */
static const char *terminal_for(const char *path)
{
    const size_t length = strlen(path);

    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        const size_t ending = strlen(formats[i].ending);

        if (length > ending && strcasecmp(path + length - ending, formats[i].ending) == 0)
            return formats[i].terminal;
    }
    return NULL;
}

static void write_script(FILE *script, const char *path, const char *title,
                         const train_result_t *results, size_t count)
{
    fputs(terminal_for(path), script);
    fputs("$results << end\n", script);
    for (size_t i = 0; i < count; i++)
        fprintf(script, "%zu %.9g %.9g %.9g\n", i + 1, results[i].train_loss, results[i].test_loss,
                results[i].test_accuracy);
    fputs("end\n", script);
    fputs(script_head, script);
    write_ranges(script, results, count);
    fprintf(script, "set multiplot layout 1,2 title \"%s\" noenhanced\n", title);
    fputs(script_tail, script);
}

/* Run gnuplot from one file to another. Returns waitpid's status, or -errno. */
static int run_gnuplot(int script, int drawing)
{
    char *const arguments[] = { "gnuplot", NULL };
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;

    if (posix_spawn_file_actions_init(&actions) != 0)
        return -ENOMEM;
    int reason = posix_spawn_file_actions_adddup2(&actions, script, STDIN_FILENO);
    if (reason == 0)
        reason = posix_spawn_file_actions_adddup2(&actions, drawing, STDOUT_FILENO);
    if (reason == 0)
        reason = posix_spawnp(&pid, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (reason != 0)
        return -reason;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return status;
}

/* Copy a complete drawing to its path. */
static bool copy(FILE *from, const char *path, train_error_t *error)
{
    char bytes[4096];
    size_t got;
    FILE *to = fopen(path, "wbe");

    if (to == NULL)
        return train_fail(error, "--plot %s: %s", path, strerror(errno));
    errno = 0;
    while ((got = fread(bytes, 1, sizeof(bytes), from)) > 0)
        fwrite(bytes, 1, got, to);

    const bool failed = ferror(to) != 0 || ferror(from) != 0;
    if (fclose(to) != 0 || failed)
        return train_fail(error, "--plot %s: %s", path, strerror(errno != 0 ? errno : EIO));
    return true;
}

/* Run gnuplot on the script. If ret_found is not NULL, a missing gnuplot is not an error:
   *ret_found becomes false, and the function returns true. */
static bool draw(FILE *script, FILE *drawing, const char *path, bool *ret_found,
                 train_error_t *error)
{
    if (fflush(script) != 0 || ferror(script))
        return train_fail(error, "--plot: a temporary file: %s", strerror(errno));
    rewind(script);

    const int status = run_gnuplot(fileno(script), fileno(drawing));
    if (ret_found != NULL)
        *ret_found = status != -ENOENT;
    if (ret_found != NULL && status == -ENOENT)
        return true;
    if (status < 0)
        return train_fail(error, "--plot %s: starting gnuplot: %s", path, strerror(-status));
    if (status > 0)
        return train_fail(error, "--plot %s: gnuplot failed with status %d", path,
                          WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return true;
}

/* Open two files without names. On failure neither is open. */
static bool open_files(FILE **ret_script, FILE **ret_drawing, train_error_t *error)
{
    *ret_script = tmpfile();
    *ret_drawing = *ret_script != NULL ? tmpfile() : NULL;
    if (*ret_drawing != NULL)
        return true;
    train_fail(error, "--plot: a temporary file: %s", strerror(errno));
    if (*ret_script != NULL)
        fclose(*ret_script);
    return false;
}

bool train_plot_check(const char *path, bool active, train_error_t *error)
{
    if (terminal_for(path) == NULL)
        return train_fail(error, "--plot %s: must end in .svg or .png", path);
    return !active || train_probe_file("--plot", path, path, error);
}

bool train_plot_try(const char *path, bool *ret_found, train_error_t *error)
{
    FILE *script, *drawing;

    if (!open_files(&script, &drawing, error))
        return false;
    fputs(terminal_for(path), script);
    const bool works = draw(script, drawing, path, ret_found, error);
    if (works && !*ret_found)
        fprintf(stderr,
                "example_train: --plot %s: will not be drawn, there is no gnuplot (Debian package "
                "gnuplot-nox)\n",
                path);
    fclose(script);
    fclose(drawing);
    return works;
}

bool train_plot(const char *path, const char *title, const train_result_t *results, size_t count,
                train_error_t *error)
{
    FILE *script, *drawing;

    if (!open_files(&script, &drawing, error))
        return false;
    write_script(script, path, title, results, count);
    bool drawn = draw(script, drawing, path, NULL, error);
    rewind(drawing);
    drawn = drawn && copy(drawing, path, error);
    fclose(script);
    fclose(drawing);
    return drawn;
}
