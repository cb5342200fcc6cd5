/* Programs into which the loader preloads nothing: not_preloaded.c. */
#ifndef XTS_PRELOAD_NOT_PRELOADED_H
#define XTS_PRELOAD_NOT_PRELOADED_H

/* Why it starts this program without the interposer, whatever LD_PRELOAD says; NULL: nothing speaks against it, or the
 * file cannot be read. The name may be one that is searched in PATH. */
const char *why_not_preloaded(const char *program);
/* The same, as far as it is true of all programs that this one starts, too, since the loader takes LD_PRELOAD out of
 * its environment. */
const char *why_never_preloaded(const char *program);

#endif
