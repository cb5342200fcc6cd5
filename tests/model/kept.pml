/*
 * Frames that are kept longer than their credit. A receiver has CHUNKS buffers. A frame takes one when it arrives, read
 * or not. Its credit goes back when the buffer is free again, or when the frame is kept: then another buffer, set
 * aside for that, is there in its place. Claimed, for any order of steps:
 *
 *     a frame that its sender may send meets a free buffer, exactly when W + KEPT + R <= CHUNKS
 *
 * W is the frame window, R the control reserve (XTS_CONTROL_RESERVE), KEPT what may be kept (xts_queue_keep()). A frame
 * of several buffers is as many frames of one that come and go together, so one is enough here.
 *
 * Variants that must fail: KEEPS_MORE (the limit of what is kept is not looked at), and too few CHUNKS.
 */
#ifndef W
#define W 2
#endif
#ifndef R
#define R 1
#endif
#ifndef KEPT
#define KEPT 2
#endif
#ifndef CHUNKS
#define CHUNKS (W + KEPT + R)
#endif
#ifdef KEEPS_MORE
#define MAY_KEEP (kept <= KEPT)
#else
#define MAY_KEEP (kept < KEPT)
#endif

byte credits = W, control = R; /* what the sender may send: messages, and frames of the link itself */
byte flying, control_flying;   /* on the wire */
byte buffers = CHUNKS;         /* free ones of the receiver */
byte unread, control_unread;   /* arrived */
byte lent, kept;               /* taken: credit out, credit back */
byte acks;                     /* credits on their way back */

active proctype link() {
	do
	:: atomic { credits > 0 -> credits--; flying++ }
	:: atomic { control > 0 -> control--; control_flying++ }
	:: atomic { flying > 0 -> assert(buffers > 0); buffers--; flying--; unread++ }
	:: atomic { control_flying > 0 -> assert(buffers > 0); buffers--; control_flying--; control_unread++ }
	:: atomic { unread > 0 -> unread--; lent++ }
	:: atomic { control_unread > 0 -> control_unread--; buffers++; control++ }
	:: atomic { lent > 0 -> lent--; buffers++; acks++ }
	:: atomic { lent > 0 && MAY_KEEP -> lent--; kept++; acks++ }
	:: atomic { kept > 0 -> kept--; buffers++ }
	:: atomic { acks > 0 -> acks--; credits++ }
	od
}
