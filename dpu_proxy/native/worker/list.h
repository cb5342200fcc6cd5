/* Intrusive doubly linked lists: a node is on at most one list, and knows whether it is on one. */
#ifndef XTS_LIST_H
#define XTS_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define list_entry(node, type, member) ((type *)(void *)((char *)(node) - offsetof(type, member)))

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

/* For a head: is the list empty? For a node: is it on no list? */
static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_append(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

static inline struct list *list_pop(struct list *head)
{
	struct list *node = head->next;

	list_remove(node);
	return node;
}

#endif
