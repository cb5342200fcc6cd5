/* The ring of a worker's log lines, between the worker and the supervisor (log.h). */
#include "worker/log.h"

#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

int log_open(struct log *log)
{
	log->first = log->count = 0;
	log->lost = 0;
	log->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (log->event_fd < 0)
		return -errno;
	return -pthread_mutex_init(&log->mutex, NULL);
}

void log_close(struct log *log)
{
	close(log->event_fd);
	pthread_mutex_destroy(&log->mutex);
}

void log_line(struct log *log, const char *format, ...)
{
	va_list arguments;

	pthread_mutex_lock(&log->mutex);
	if (log->count == LOG_LINES) {
		log->lost++;
	} else {
		va_start(arguments, format);
		(void)vsnprintf(log->line[(log->first + log->count) % LOG_LINES], LOG_LINE_BYTES, format, arguments);
		va_end(arguments);
		log->count++;
		(void)eventfd_write(log->event_fd, 1);
	}
	pthread_mutex_unlock(&log->mutex);
}

int log_next(struct log *log, char *out, uint32_t bytes)
{
	int found = 0;

	pthread_mutex_lock(&log->mutex);
	if (log->count) {
		(void)snprintf(out, bytes, "%s", log->line[log->first]);
		log->first = (log->first + 1) % LOG_LINES;
		log->count--;
		found = 1;
	} else if (log->lost) {
		(void)snprintf(out, bytes, "%llu log lines lost", (unsigned long long)log->lost);
		log->lost = 0;
		found = 1;
	}
	if (!log->count && !log->lost) {
		eventfd_t ignored;

		(void)eventfd_read(log->event_fd, &ignored);
	}
	pthread_mutex_unlock(&log->mutex);
	return found;
}
