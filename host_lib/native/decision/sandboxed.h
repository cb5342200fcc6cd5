/* Programs that do not work with offloaded sockets, by their names: sandboxed.c. */
#ifndef XTS_SANDBOXED_H
#define XTS_SANDBOXED_H

/* The reason, as the end of a sentence that begins with the program's name; NULL: the program is not on the list. */
const char *xts_sandboxed(const char *program);

#endif
