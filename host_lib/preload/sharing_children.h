/* Children that run at the same time as their parent, in its memory: sharing_children.c. */
#ifndef XTS_PRELOAD_SHARING_CHILDREN_H
#define XTS_PRELOAD_SHARING_CHILDREN_H

#include <stdint.h>

struct clone_call {
	int (*function)(void *);
	void *stack;
	int flags;
	void *argument;
	void *parent_tid, *tls, *child_tid;
};

/* clone() with CLONE_VM, of a child that is not a thread. Its result. */
int sharing_clone(const struct clone_call *call);
/* The calling child is about to end, or to exec. */
void sharing_ends(void);
/* The table of the calling child, which shares this memory; made now, where nobody has seen the child being made. NULL:
 * no memory. */
_Atomic uint64_t *sharing_table(void);
/* For the parent: have some ended that have no guard? */
void sharing_look_for_ended(void);

#endif
