/* A socket between two processes of the proxy; see handed.h. */
#include "connection/handed.h"

#include <stdlib.h>

#include "connection/tcp_move.h"
#include "connection/tcp_record.h"
#include "pushed/pushed.h"

void handed_move(struct handed *to, struct handed *from)
{
	if (from->own) { /* its side is no TCP side */
		*to = *from;
		*from = HANDED_NONE;
		return;
	}
	to->own = NULL;
	tcp_side_move(&to->side, &from->side);
}

void handed_drop(struct handed *h)
{
	pushed_free(h->side.pushed);
	xts_record_drop(&tcp_side_record, &h->side);
	free(h->own);
	*h = HANDED_NONE;
}
