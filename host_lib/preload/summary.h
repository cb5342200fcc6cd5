/* What a process under `xts run -v` writes when it ends. */
#ifndef XTS_PRELOAD_SUMMARY_H
#define XTS_PRELOAD_SUMMARY_H

/* Writes it once; does nothing without XTS_VERBOSE=1, or in a process that had no IP socket. */
void summary_tell(void);

#endif
