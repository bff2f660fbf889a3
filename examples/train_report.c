/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Progress for users, and files for programs.
 *
 * A bar is drawn only on a terminal of known width. Open MPI gives each rank a pseudo-terminal for
 * stdout, even if mpirun itself writes to a file, so isatty() alone does not suffice. If mpirun
 * writes to a file, the pseudo-terminal has a width of 0; otherwise it has the real terminal's
 * width.
 */
#include "train_report.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DRAW_SECONDS 0.1
#define BAR_MIN 8
#define BAR_MAX 40
#define DEFAULT_COLUMNS 80 /* with --progress bar and no terminal */
#define LINE_BYTES 256
#define LOSS_BYTES 330 /* the largest double has 309 digits before the point */

/* Columns of the terminal on stdout; 0: no terminal. */
static size_t terminal_columns(void)
{
    struct winsize size;

    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        return 0;
    return size.ws_col;
}

static bool open_file(const char *path, const char *option, FILE **ret_file, train_error_t *error)
{
    if (path == NULL)
        return true;
    *ret_file = fopen(path, "a");
    if (*ret_file == NULL)
        return train_fail(error, "%s %s: %s", option, path, strerror(errno));
    return true;
}

bool train_report_open(const train_options_t *options, bool active, train_report_t *ret_report,
                       train_error_t *error)
{
    memset(ret_report, 0, sizeof(*ret_report));
    if (!active)
        return true;

    ret_report->active = true;
    ret_report->bar = options->progress == TRAIN_PROGRESS_BAR ||
                      (options->progress == TRAIN_PROGRESS_AUTO && terminal_columns() > 0);
    ret_report->resumed = options->resume;
    ret_report->metrics_path = options->metrics;
    ret_report->log_steps_path = options->log_steps;
    return open_file(options->metrics, "--metrics", &ret_report->metrics, error) &&
           open_file(options->log_steps, "--log-steps", &ret_report->log_steps, error);
}

void train_report_line(train_report_t *report, const char *format, ...)
{
    if (!report->active)
        return;

    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

/* Remove the content of a file, unless it is NULL. Pipes and devices have none. Returns 0 or an
   errno. */
static int empty(FILE *file)
{
    if (file == NULL || ftruncate(fileno(file), 0) == 0 || errno == EINVAL)
        return 0;
    return errno;
}

void train_report_begin(train_report_t *report)
{
    report->begin_seconds = train_seconds();
    if (report->resumed)
        return;
    report->metrics_errno = empty(report->metrics);
    report->log_steps_errno = empty(report->log_steps);
}

/* Write the bar between two texts, so that the line fits into the columns. */
static void draw(const char *left, const char *right, double done, size_t columns)
{
    char line[LINE_BYTES];
    const size_t text = strlen(left) + strlen(right) + 4; /* brackets and spaces */
    size_t width = columns > text + 1 ? columns - text - 1 : 0;

    width = width > BAR_MAX ? BAR_MAX : width;
    if (width >= BAR_MIN) {
        char bar[BAR_MAX + 1];
        const size_t filled = (size_t)(done * (double)width);

        memset(bar, ' ', width);
        memset(bar, '=', filled);
        if (filled < width)
            bar[filled] = '>';
        bar[width] = '\0';
        snprintf(line, sizeof(line), "%s [%s] %s", left, bar, right);
    } else {
        snprintf(line, sizeof(line), "%s %s", left, right);
    }

    /* the last column stays empty: a character there makes some terminals begin a new line */
    printf("\r%.*s\033[K", columns > 0 ? (int)columns - 1 : 0, line);
    fflush(stdout);
}

static void erase(train_report_t *report)
{
    if (report->drawn)
        printf("\r\033[K");
    report->drawn = false;
}

bool train_report_wants_step(const train_report_t *report)
{
    return report->log_steps != NULL ||
           (report->bar && train_seconds() - report->drawn_seconds >= DRAW_SECONDS);
}

void train_report_step(train_report_t *report, const train_step_t *step)
{
    if (report->log_steps != NULL)
        fprintf(report->log_steps, "%zu %.9f\n", step->step, step->loss);
    if (!report->bar)
        return;

    const double now = train_seconds();
    if (now - report->drawn_seconds < DRAW_SECONDS)
        return;
    report->drawn_seconds = now;
    report->drawn = true;

    const size_t terminal = terminal_columns();
    const double done = (double)step->epoch_step / (double)step->epoch_steps;
    const double left_seconds = (now - report->begin_seconds) * (double)(step->steps - step->step) /
                                (double)(step->step - step->earlier_steps);
    const unsigned long seconds = (unsigned long)ceil(left_seconds);
    char left[64], right[128];

    snprintf(left, sizeof(left), "epoch %zu/%zu", step->epoch, step->epochs);
    snprintf(right, sizeof(right), "%3.0f%%  loss %.4f  %.0f images/s  %lu:%02lu left",
             100.0 * done, step->epoch_loss, step->images_per_second, seconds / 60, seconds % 60);
    draw(left, right, done, terminal > 0 ? terminal : DEFAULT_COLUMNS);
}

/* The part of communication that was hidden; negative: there was no communication. */
static double hidden_share(double hidden_seconds, double exposed_seconds)
{
    const double all = hidden_seconds + exposed_seconds;

    return all > 0.0 ? hidden_seconds / all : -1.0;
}

/* A loss as JSON, which has neither nan nor inf. */
static void format_loss(double loss, char *ret_text, size_t bytes)
{
    if (isfinite(loss))
        snprintf(ret_text, bytes, "%.9f", loss);
    else
        snprintf(ret_text, bytes, "null");
}

void train_report_epoch(train_report_t *report, const train_epoch_t *epoch)
{
    const train_result_t *result = &epoch->result;
    const double hidden = hidden_share(epoch->hidden_seconds, epoch->exposed_seconds);
    char shown[32] = "", json[32] = "null";

    if (!report->active)
        return;

    report->hidden_seconds += epoch->hidden_seconds;
    report->exposed_seconds += epoch->exposed_seconds;
    if (hidden >= 0.0) {
        snprintf(shown, sizeof(shown), "  hidden %.1f%%", 100.0 * hidden);
        snprintf(json, sizeof(json), "%.6f", hidden);
    }
    erase(report);
    printf("epoch %zu/%zu  loss %.4f  test accuracy %.4f  %.0f images/s  waiting %.1f%%%s\n",
           epoch->epoch, epoch->epochs, result->train_loss, result->test_accuracy,
           epoch->images_per_second, 100.0 * epoch->wait_share, shown);
    fflush(stdout);

    if (report->metrics != NULL) {
        char train_loss[LOSS_BYTES], test_loss[LOSS_BYTES];

        format_loss(result->train_loss, train_loss, sizeof(train_loss));
        format_loss(result->test_loss, test_loss, sizeof(test_loss));
        fprintf(report->metrics,
                "{\"epoch\": %zu, \"train_loss\": %s, \"test_loss\": %s, "
                "\"test_accuracy\": %.6f, \"images_per_second\": %.1f, \"wait_share\": %.6f, "
                "\"hidden_share\": %s, \"learning_rate\": %.9g, \"reductions\": %zu}\n",
                epoch->epoch, train_loss, test_loss, result->test_accuracy,
                epoch->images_per_second, epoch->wait_share, json, result->learning_rate,
                epoch->reductions);
        if (fflush(report->metrics) != 0 && report->metrics_errno == 0)
            report->metrics_errno = errno;
    }
}

void train_report_digests(train_report_t *report, const uint64_t *digests, size_t count)
{
    for (size_t i = 0; report->active && i < count; i++)
        printf("digest of rank %zu: %016llx\n", i, (unsigned long long)digests[i]);
}

void train_report_hidden(train_report_t *report)
{
    const double hidden = hidden_share(report->hidden_seconds, report->exposed_seconds);

    if (report->active && hidden >= 0.0)
        printf("communication hidden behind the backward pass: %.1f%%\n", 100.0 * hidden);
}

void train_report_accuracy(train_report_t *report, double accuracy)
{
    if (report->active)
        printf("test accuracy %.4f\n", accuracy);
}

void train_report_interrupted(train_report_t *report, const train_stop_t *stop)
{
    if (!report->active)
        return;
    report->drawn = report->bar; /* even if the bar was erased: the terminal shows ^C there */
    erase(report);
    printf("example_train: interrupted in epoch %zu/%zu, after step %zu of %zu; ", stop->epoch,
           stop->epochs, stop->step, stop->steps);
    if (stop->checkpoint != NULL)
        printf("%s has step %zu; --resume goes on from there\n", stop->checkpoint,
               stop->saved_step);
    else
        puts("nothing was saved");
    fflush(stdout);
}

/* Close a file, unless it is NULL. earlier: the errno of a failed write, or 0. */
static bool close_file(FILE *file, const char *option, const char *path, int earlier,
                       train_error_t *error)
{
    if (file == NULL)
        return true;

    const bool failed = ferror(file) != 0;
    if (fclose(file) != 0 && earlier == 0)
        earlier = errno;
    if (earlier == 0 && failed)
        earlier = EIO; /* an earlier write has failed, and its errno is lost */
    if (earlier != 0)
        return train_fail(error, "%s %s: %s", option, path, strerror(earlier));
    return true;
}

bool train_report_close(train_report_t *report, train_error_t *error)
{
    bool written = true;

    if (!report->active)
        return true;
    erase(report);
    if (fflush(stdout) != 0 || ferror(stdout))
        written = train_fail(error, "stdout: %s", strerror(errno));
    if (!close_file(report->metrics, "--metrics", report->metrics_path, report->metrics_errno,
                    error))
        written = false;
    if (!close_file(report->log_steps, "--log-steps", report->log_steps_path,
                    report->log_steps_errno, error))
        written = false;
    report->metrics = report->log_steps = NULL;
    report->active = false;
    return written;
}
