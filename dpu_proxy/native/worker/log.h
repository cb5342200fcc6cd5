/* Log lines of a worker: a bounded ring that the supervisor empties. Lines for which there is no room are dropped and
 * counted. */
#ifndef XTS_LOG_H
#define XTS_LOG_H

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>

#define LOG_LINES 256u
#define LOG_LINE_BYTES 200u

struct log {
	pthread_mutex_t mutex;
	int event_fd;
	uint32_t first, count;
	uint64_t lost;
	char line[LOG_LINES][LOG_LINE_BYTES];
};

int log_open(struct log *log);
void log_close(struct log *log);
__attribute__((format(printf, 2, 3))) void log_line(struct log *log, const char *format, ...);
/* Copies the oldest line to out; 1, or 0 when there is none. */
int log_next(struct log *log, char *out, uint32_t bytes);

#endif
