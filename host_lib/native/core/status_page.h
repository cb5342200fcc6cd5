/* What is written to the status page (status.h), for `xts status`: status.c. */
#ifndef XTS_STATUS_PAGE_H
#define XTS_STATUS_PAGE_H

struct stack;
struct xts_sock;

void status_state(const struct xts_sock *s);
void status_data(const struct xts_sock *s);
void status_ulps(const struct xts_sock *s);   /* what is pushed has changed */
void status_link(struct stack *st);

#endif
