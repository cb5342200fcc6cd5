/* Programs that do not work with offloaded sockets, by their names: sandboxed.c. */
#ifndef XTS_SANDBOXED_H
#define XTS_SANDBOXED_H

/* Why, as the end of a sentence that the program begins; NULL: it is none of them. */
const char *xts_sandboxed(const char *program);

#endif
