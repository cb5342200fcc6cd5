/* Writing the status page (status.h), for `xts status`: status.c. */
#ifndef XTS_STATUS_PAGE_H
#define XTS_STATUS_PAGE_H

#include <stdbool.h>

struct channel;
struct stack;
struct xts_sock;

void status_state(struct xts_sock *s);
void status_data(struct xts_sock *s);
void status_ulps(const struct xts_sock *s); /* the pushed protocols have changed */
void status_link(struct stack *st);
void status_clock(const struct channel *c); /* the device's clock has been measured */
/* What it waits for: socket_waits.c. */
void waits_to_send(struct xts_sock *s);  /* a send has found no room, for the reason s->refused_for */
void waits_may_send(struct xts_sock *s); /* there may be room */
void waits_look(struct xts_sock *s);     /* what has been received, read or asked has changed */
void waits_forget(struct xts_sock *s);   /* it is not a connection any more */
/* The figures behind the page: status_figures.c. */
void figures_data(struct stack *st);         /* the byte counts have changed */
void figures_update(struct stack *st);       /* writes all of them; CPU time not too often */
void figures_close(struct stack *st);        /* the process exits normally */
void figures_after_fork(void);               /* in a child: no socket has been counted so far */
bool figures_behind(const struct stack *st); /* have counts changed while another call had the lock? */

#endif
