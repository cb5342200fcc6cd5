/*
 * Which processes have a copy of a connection: relatives.c.
 *
 * fork() gives a child copies of all descriptors, and the kernel ends a connection when the last copy is closed. Here
 * all processes that descend from one process by fork and exec (relatives) have a file in common. It has a slot for
 * each process and an entry for each connection that more than one of them may have, with a bit for each process that
 * has a copy. A process holds a record lock on the byte of its slot, which the kernel drops when it dies, however that
 * happens.
 *
 * A relative can write to all of the file. All that it achieves is that a connection of theirs is closed, or kept,
 * at the wrong time. The right to use a connection is its key, which is not in the file but in the memory of the
 * processes that have a copy.
 */
#ifndef XTS_RELATIVES_H
#define XTS_RELATIVES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ulps/pushed.h"

#define RELATIVES_MAX 512u /* processes at a time */
#define COMMON_MAX 16384u  /* connections at a time */

/* A connection that several processes may have. */
struct common {
	_Atomic uint32_t used;
	_Atomic uint32_t keeper; /* 1 + the slot of a process that has closed it and keeps it for the others; 0: none */
	/* Written by the process that uses the connection, for the next one. The counters cover that process's use. */
	_Atomic uint64_t read_bytes, sent_bytes;
	uint8_t shutdown;
	uint32_t pdu_read; /* of the first PDU that is returned: bytes that were read before */
	struct ulps ulps;
	_Atomic uint32_t passed; /* programs that are not relatives may have it too; its deed says which */
	_Atomic uint64_t has[RELATIVES_MAX / 64];
};

/* Processes known to be alive, cached while many connections are looked at. */
struct living {
	uint64_t known[RELATIVES_MAX / 64];
};

/* All need some stack's lock, but the file belongs to the process. NULL, -1 and false: no memory, or no room. */
struct common *relatives_add(void);          /* makes an entry, and sets this process's bit */
bool relatives_expect_child(void);           /* before a fork: reserves a slot for the child */
void relatives_give_child(struct common *c); /* sets the bit of the child to come */
void relatives_after_fork(bool is_child);
void relatives_orphaned(void);                       /* in a child that nobody has expected: caller.h */
bool relatives_have(const struct common *c);         /* does this process have it? */
bool relatives_seem_to_have(const struct common *c); /* may others have it? does not check that they are alive */
/* Do others have it? *living, if not NULL: processes already known to be alive, so that each is checked only once. */
bool relatives_others_have(struct common *c, struct living *living);
/* Clears this process's bit. False: no process has or keeps it, and this one has to close the connection. */
bool relatives_leave(struct common *c);
void relatives_rejoin(struct common *c);     /* after an exec that failed: this process has it again */
void relatives_keep(struct common *c);       /* clears this process's bit, but keeps the connection for the others */
void relatives_have_again(struct common *c); /* after relatives_keep(): sets the bit again, and stops keeping it */
/* Stops keeping it. False: as for relatives_leave(): processes that left earlier relied on this one. */
bool relatives_kept(struct common *c);
/* Over exec: the descriptor of the file, which the new program keeps (or, after a failed exec, does not keep); -1: no
 * file. */
int relatives_pass(bool pass);
uint32_t relatives_slot(void);
uint32_t relatives_index(const struct common *c);
/* In the new program. NULL: the descriptor is not of such a file. */
struct common *relatives_adopt(int fd, uint32_t slot, uint32_t index);

#endif
