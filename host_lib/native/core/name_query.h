/* Queries for names: name_query.c. */
#ifndef XTS_NAME_QUERY_H
#define XTS_NAME_QUERY_H

struct stack;

void name_queries_lose(struct stack *st); /* called when the channel has ended */

#endif
