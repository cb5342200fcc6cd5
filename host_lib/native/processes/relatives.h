/*
 * Which processes have a copy of a connection: relatives.c.
 *
 * fork() gives a child copies of all descriptors, and the kernel ends a connection when the last one is closed. Here
 * the processes that come from one another by fork and exec (relatives) have a file in common. It has a slot for each
 * process and an entry for each connection that more than one of them may have, with a bit for each process that has a
 * copy. A process holds a record lock on the byte of its slot, which the kernel drops when it dies, however that
 * happens.
 *
 * A relative can write all of it. What it can do so is to have a connection of the family closed, or kept, at the wrong
 * time. The right to use a connection is its key, which is not in the file but in the memory of the processes that have
 * a copy.
 */
#ifndef XTS_RELATIVES_H
#define XTS_RELATIVES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ulps/pushed.h"

#define RELATIVES_MAX 512u /* processes at a time */
#define COMMON_MAX 16384u  /* connections at a time */

/* Of a connection that was passed to other programs: passed_names.h. */
struct passed_name {
	uint8_t bytes[16];
};

/* A connection that several processes may have. */
struct common {
	_Atomic uint32_t used;
	_Atomic uint32_t keeper; /* 1 + the slot of a process that has closed it and keeps it for the others; 0: none */
	/* What the process that uses it says of it, for the next one. The counters are of that process's time with it. */
	_Atomic uint64_t read_bytes, sent_bytes;
	uint8_t shutdown;
	uint32_t pdu_read; /* of the first PDU that is returned: bytes that had been read before */
	struct ulps ulps;
	_Atomic uint32_t passed; /* programs that are no relatives may have it, too; the name says which */
	struct passed_name passed_name;
	_Atomic uint64_t has[RELATIVES_MAX / 64];
};

/* Processes that were found alive, for one look at many connections. */
struct living {
	uint64_t known[RELATIVES_MAX / 64];
};

/* All need some stack's lock; the file is the process's. NULL, -1 and false: no memory, or no room. */
struct common *relatives_add(void);          /* an entry that this process has */
bool relatives_expect_child(void);           /* a fork is coming: there is a slot for the child */
void relatives_give_child(struct common *c); /* the child that is coming will have it */
void relatives_after_fork(bool is_child);
bool relatives_have(const struct common *c);         /* this process has it */
bool relatives_seem_to_have(const struct common *c); /* others may: without looking whether they live */
/* Others have. *living, if it is not NULL: those that are known to live, so that each is looked at once. */
bool relatives_others_have(struct common *c, struct living *living);
/* This process has it no more. False: nobody has it or keeps it, and this process is the one that closes it. */
bool relatives_leave(struct common *c);
void relatives_rejoin(struct common *c);     /* after an exec that failed: it has it still */
void relatives_keep(struct common *c);       /* it has it no more, but keeps it for the others */
void relatives_have_again(struct common *c); /* after relatives_keep(): it has it, and does not keep it */
/* It does not keep it any more. False: as of relatives_leave(). Who has left before this counted on us. */
bool relatives_kept(struct common *c);
/* Over exec: the descriptor of the file, which the new program keeps (or not after all); -1: there is no file. */
int relatives_pass(bool pass);
uint32_t relatives_slot(void);
uint32_t relatives_index(const struct common *c);
/* in the new program; NULL: it is not such a file */
struct common *relatives_adopt(int fd, uint32_t slot, uint32_t index);

#endif
