/*
 * Which processes have a copy of a connection: relatives.c, relatives_file.c, relatives_fork.c.
 *
 * fork() gives a child copies of all descriptors, and the kernel ends a connection when the last copy is closed. Here
 * the processes that got connections by fork and exec (relatives) have files in common. A file has a slot for each
 * process and an entry for each connection that more than one of them may have, with a bit for each process that has a
 * copy. A process holds a record lock on the byte of its slot, which the kernel drops when it dies, however that
 * happens.
 *
 * A relative can write to all of a file, and it may have given up its user. So a child has only the files of
 * connections that it has: what becomes common after a fork goes into a new file, and a process gives a file up with
 * its last connection in it. What a relative can achieve is that a connection of a file that it has is closed, or kept,
 * at the wrong time.
 *
 * The key of a connection is in its entry. When a process no longer has a copy, the entry says so, and the process that
 * uses the connection next gives it another key (key_renewal.c). So who has closed all its connections of a file has no
 * key, and what it remembers is good for nothing.
 *
 * Two versions of this library may have the same file, before and after exec. So it says how it is laid out: where the
 * entries are, and how long each is. A later version adds members at the end of an entry, which earlier ones pass over;
 * it must not believe them in a file that an earlier one has made. Whatever else changes raises COMPATIBLE.
 *
 * Why not leave the count to the kernel? A descriptor for each connection, inherited and closed as the program's own,
 * whose hang-up tells the process at its other end that the last copy is closed, would replace locks and bits. It was
 * tried with 1,500 connections, on a busy machine: the first fork took 19 to 26 ms of CPU, and not 5 to 6.5; later ones
 * as much as now. After the last of 8 processes was killed all ends were heard within 49 ms. But the other end takes as
 * many descriptors, over AF_XDP the agent's for all programs of a host, and when that process is started again all hang
 * up at once, which says nothing. So the count stays here.
 *
 * That the *last* process of a file has been killed no relative sees. So the process that makes a file sends it to the
 * server that it is attached to (attach.h), before anybody else has it, and so does each that has a connection of it
 * from then on. After the end of a process the server looks at slots and bits as a relative does, and has the
 * connections ended that nobody has: relatives_files.py of xts_messages. So it also sees that a process was killed just
 * after the others had closed their copies, while they live. It takes no descriptor of the processes, and nothing for a
 * connection. One more end of a pipe in each process would tell of the last one without a look, but would have to pass
 * over exec, and would not tell of that. A proxy ends them itself. An agent tells the proxy, by OVER, on the queue of a
 * process that has sent the file: one that lives, or else the last one that did, since the proxy knows its epoch for a
 * while. A proxy over shared memory that takes over from another one has none of its files: they are sent again.
 * What was passed to other programs a file does not tell of: that is kept for 60 s.
 */
#ifndef XTS_RELATIVES_H
#define XTS_RELATIVES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "processes/shared_status.h"
#include "ulps/pushed.h"

#define RELATIVES_MAX 512u /* processes at a time */
#define COMMON_MAX 16384u  /* connections at a time */

/* A connection that several processes may have. */
struct common {
	_Atomic uint32_t used;
	_Atomic uint32_t keeper; /* 1 + the slot of a process that has closed it and keeps it for the others; 0: none */
	/* Written by the process that uses the connection, for the next one. The counters cover that process's use. */
	_Atomic uint64_t read_bytes, sent_bytes;
	_Atomic uint8_t shutdown; /* what programs have shut down, or will have when a process uses it next */
	_Atomic uint8_t torn;     /* bytes went with a process that was killed: it has ended for all that have it */
	uint32_t pdu_read;        /* of the first PDU that is returned: bytes that were read before */
	struct ulps ulps;
	_Atomic uint64_t key;      /* the one in force */
	_Atomic uint32_t left;     /* a process has left that knows it */
	_Atomic uint32_t passed;   /* programs that are not relatives may have it too; its deed says which */
	_Atomic uint32_t received; /* these processes have it from such a program */
	_Atomic uint64_t has[RELATIVES_MAX / 64];
	struct shared_status status; /* not in files of older versions: relatives_status() */
};

/* Processes known to be alive, cached while many connections are looked at. */
struct living {
	const void *file; /* of this one */
	uint64_t known[RELATIVES_MAX / 64];
};

/* All need some stack's lock. NULL, -1 and false: no memory, or no room. */
void relatives_begin(void);         /* makes a file now: its lock is the calling process's */
struct common *relatives_add(void); /* makes an entry, and sets this process's bit */
/* This process has no more use for the entry: the last one in a file gives the file up. */
void relatives_drop(struct common *c);
bool relatives_give_child(struct common *c); /* before a fork: sets the bit of the child to come */
void relatives_after_fork(bool is_child);
void relatives_orphaned(void);                       /* in a child that nobody has expected: caller.h */
bool relatives_inherited(struct common *c);          /* in the child: does this process have it? */
void relatives_drop_unused(void);                    /* in the child, after that: the files in which it has nothing */
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
/* Over exec: where an entry is. The new program keeps the descriptor. */
struct relatives_place {
	int fd;
	uint32_t slot, index;
};
struct relatives_place relatives_pass(struct common *c);
struct shared_status *relatives_status(struct common *c); /* NULL: its file has none */
void relatives_resume(void);                              /* after a failed exec: it does not keep them */
/* In the new program: 0; -ENOENT: it is not such a file, or this process has not that entry; -EPROTONOSUPPORT: another
 * version of this library made the file, and this one cannot read it. */
int relatives_adopt(const struct relatives_place *place, struct common **out);
/* Tells a server of the files that this process uses, and of which it has not been told. *told: 0 at first. tell() does
 * not wait. */
void relatives_tell(uint64_t *told, void (*tell)(const void *context, int fd), const void *context);
bool relatives_unused(int fd); /* is it such a file, of which nothing was adopted? */

#endif
