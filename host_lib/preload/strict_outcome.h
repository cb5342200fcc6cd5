/* The exit status of a program under `xts run --strict` that had nothing offloaded. */
#ifndef XTS_PRELOAD_STRICT_OUTCOME_H
#define XTS_PRELOAD_STRICT_OUTCOME_H

#define EXIT_NOTHING_OFFLOADED 3

/* To be called once, at the start. */
void strict_outcome_start(void);
/* The status with which this process shall end, instead of this one; a sentence is written if it is another. */
int strict_outcome(int status);

#endif
