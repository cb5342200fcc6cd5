/*
 * A file that says who has a socket: deed.c.
 *
 * A *deed* is a memfd. Each process that has the socket has an open file of it, each with a lock (an open file
 * description lock, of the shared kind), and so has each descriptor that is on its way to another program. The kernel
 * drops a lock when the last descriptor of its open file is closed, however that happens: close, exec, SIGKILL, or a
 * Unix socket that nobody reads. Do others have the socket? They do if a lock that excludes all others could not be
 * had. So there is no limit for the number of processes, and nobody can name a deed who was not given it.
 *
 * Why not the end of a pipe? It says that the last copy of the other end is closed, for fork, exec, dup and SIGKILL
 * alike. But a process that has a copy cannot watch it, since its own copy hides those of others. The agent or the
 * proxy could; when that one is started again, nobody knows any more, and the ends of copies that are elsewhere cannot
 * be made again. Why not a deed for each connection at a fork? It would double the descriptors of a process that has
 * many: connections that pass to relatives are in files that they have in common (relatives.h).
 *
 * fork() and passing copy a descriptor, not the open file. A second open file of the same deed comes from
 * /proc/self/fd. Where there is no /proc, processes share one, and each has to assume that others have the socket.
 */
#ifndef XTS_DEED_H
#define XTS_DEED_H

#include <stdbool.h>
#include <stdint.h>

struct shared_status;

/* Random bytes, in the file and in the record of a socket that passes: this deed is that socket's. */
struct deed_id {
	uint8_t bytes[16];
};

/* The key in force (key_renewal.h); 0: none. */
uint64_t deed_key(int fd);
void deed_put_key(int fd, uint64_t key);
void deed_note_leaving(int fd); /* a process leaves that knows the key */
bool deed_was_left(int fd);     /* is there such a note? takes it away */
/* Processes may have the socket that have no deed of it: relatives of the one that made it, from before. */
void deed_put_without(int fd, bool without);
bool deed_is_without(int fd); /* true, if that cannot be found out */

/* A process has shut the listener down: who does not know yet must not make it again as one that listens. */
void deed_put_shut(int fd, bool shut);
bool deed_is_shut(int fd);

/* Its memory for shared_status.h, of all that have it; NULL: there is none. */
struct shared_status *deed_map(int fd);
void deed_unmap(struct shared_status *status); /* NULL: does nothing */

int deed_make(struct deed_id *id); /* a descriptor with a lock, or -errno */
/* A descriptor of another open file of the same deed, with a lock of its own; -errno, as where there is no /proc. */
int deed_again(int fd);
bool deed_is(int fd, const struct deed_id *id);
bool deed_seems(int fd);       /* is it any deed? */
bool deed_others_have(int fd); /* does another open file have it? true, if that cannot be found out */
bool deed_leave(int fd);       /* gives up the lock; true: as for deed_others_have() */

/* A Unix socket with the deed inside; who does not know of it finds a connection that was reset. deed_unwrap() returns
 * a descriptor of the same open file, as often as it is called; -errno: there is none, or another deed. */
int deed_wrap(int fd);
int deed_unwrap(int carrier, const struct deed_id *id);

#endif
