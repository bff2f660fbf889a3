/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --plot: latency and bandwidth over size, both axes logarithmic, drawn by gnuplot.
 *
 * The end of the file's name chooses the format, by the rule of example_train's --plot.
 */
#include "harness/bench.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* gnuplot's terminals. A PNG has twice as many pixels in each direction as an SVG has units, for
   screens with many pixels per inch. */
static const struct {
    const char *ending;
    const char *terminal;
} formats[] = {
    { ".svg", "svg size 1200,520" },
    { ".png", "pngcairo size 2400,1040 fontscale 1.5 linewidth 2 pointscale 2" },
};

static const char *terminal_for(const char *path)
{
    size_t length = strlen(path);

    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        size_t ending = strlen(formats[i].ending);

        if (length > ending && strcasecmp(path + length - ending, formats[i].ending) == 0)
            return formats[i].terminal;
    }
    return NULL;
}

int bench_plot_known(const char *path)
{
    return terminal_for(path) != NULL;
}

static int has_gnuplot(void)
{
    const char *path = getenv("PATH");

    while (path != NULL && *path != '\0') {
        size_t length = strcspn(path, ":");
        char file[4096];

        snprintf(file, sizeof(file), "%.*s/gnuplot", (int)length, path);
        if (access(file, X_OK) == 0)
            return 1;
        path += length + (path[length] == ':');
    }
    return 0;
}

int bench_plot_begin(const bench_t *bench)
{
    if (bench->options.plot == NULL)
        return 0;
    if (has_gnuplot())
        return 1;
    fprintf(stderr,
            "%s: --plot %s: will not be drawn, there is no gnuplot (Debian package gnuplot-nox)\n",
            bench->program->name, bench->options.plot);
    return 0;
}

/* Print in single quotes, where only a quote must be escaped. */
static void put_quoted(FILE *to, const char *text)
{
    fputc('\'', to);
    for (; *text != '\0'; text++)
        fprintf(to, *text == '\'' ? "''" : "%c", *text);
    fputc('\'', to);
}

/* Columns: bytes, the limit, and median, p10, p90 and bandwidth of each contestant. */
static void put_data(const bench_t *bench, const bench_row_t *rows, size_t count, FILE *to)
{
    fprintf(to, "$data << END\n");
    for (size_t i = 0; i < count; i++) {
        if (rows[i].limit_us > 0.0)
            fprintf(to, "%zu %.6g", rows[i].bytes, rows[i].limit_us);
        else
            fprintf(to, "%zu NaN", rows[i].bytes);
        for (int who = 0; who < bench->count; who++) {
            const bench_figures_t *f = &rows[i].of[who];

            fprintf(to, " %.6g %.6g %.6g %.6g", f->median_us, f->p10_us, f->p90_us, f->bus_gbs);
        }
        fprintf(to, "\n");
    }
    fprintf(to, "END\n");
}

static void put_latency(const bench_t *bench, FILE *to)
{
    fprintf(to, "set ylabel 'median latency [us], p10 to p90'\nset key top left noenhanced\nplot");
    for (int who = 0; who < bench->count; who++) {
        int column = 3 + 4 * who;

        fprintf(to,
                " $data using 1:%d:%d with filledcurves fs transparent solid 0.15 lc %d notitle,",
                column + 1, column + 2, who + 1);
        fprintf(to, " $data using 1:%d with linespoints lc %d pt 7 ps 0.5 lw 1.5 title '%s',",
                column, who + 1, bench->names[who]);
    }
    fprintf(to, " $data using 1:2 with lines lc rgb 'black' dt 2 title 'limit'\n");
}

static void put_bandwidth(const bench_t *bench, FILE *to)
{
    fprintf(to, "set ylabel 'bus bandwidth [GB/s]'\nplot");
    for (int who = 0; who < bench->count; who++)
        fprintf(to, " $data using 1:%d with linespoints lc %d pt 7 ps 0.5 lw 1.5 title '%s',",
                6 + 4 * who, who + 1, bench->names[who]);
    fprintf(to, " 1/0 notitle\n");
}

static void put_script(const bench_t *bench, const bench_row_t *rows, size_t count, FILE *to)
{
    char title[512];
    char host[256];

    bench_fact_host(host, sizeof(host));
    snprintf(title, sizeof(title), "%s, %d ranks, %s, commit %s", bench->program->name,
             bench->world.size, host, bench_fact_commit());
    put_data(bench, rows, count, to);
    fprintf(to, "set terminal %s background rgb 'white'\nset output ",
            terminal_for(bench->options.plot));
    put_quoted(to, bench->options.plot);
    fprintf(to, "\nset multiplot layout 1,2 title ");
    put_quoted(to, title);
    fprintf(to, " noenhanced\nset logscale xy\nset logscale x 2\nset grid\n"
                "set format x '%%.0b%%B'\nset xlabel 'size [bytes]'\n");
    put_latency(bench, to);
    /* With one rank there is no bandwidth. */
    if (rows[0].of[0].bus_gbs > 0.0)
        put_bandwidth(bench, to);
    fprintf(to, "unset multiplot\n");
}

int bench_plot_write(const bench_t *bench, const bench_row_t *rows, size_t count)
{
    /* If gnuplot ends early, SIGPIPE would end this program. */
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    /* If gnuplot cannot open the file, it draws on its standard output, hence >/dev/null. */
    FILE *to = count > 0 ? popen("gnuplot >/dev/null", "w") : NULL;
    int status = -1;

    if (to != NULL) {
        put_script(bench, rows, count, to);
        status = pclose(to);
    }
    signal(SIGPIPE, before);
    if (status != 0)
        fprintf(stderr, "%s: --plot %s: gnuplot failed\n", bench->program->name,
                bench->options.plot);
    return status == 0 ? 0 : -1;
}
