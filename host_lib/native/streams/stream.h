/* Streams, and what listeners have of them (core/socket_kind.h): a listener is a stream that listens. */
#ifndef XTS_STREAM_H
#define XTS_STREAM_H

#include "core/socket_kind.h"

/* In the files that have the rest of the matter. */
int stream_bind(struct xts_sock *s, const struct sockaddr *address, socklen_t length);
int stream_connect(struct xts_sock *s, const struct sockaddr *address, socklen_t length,
		   const struct connect_pushes *encoded);
int stream_shutdown(struct xts_sock *s, int how);
int stream_peer(const struct xts_sock *s, struct sockaddr *address, socklen_t *length);
ssize_t stream_send(struct xts_sock *s, struct source *src, int flags, const struct msghdr *message);
ssize_t stream_recv(struct xts_sock *s, const struct sink *to, int flags, struct about *about, bool *keys);
int stream_send_messages(struct xts_sock *s, struct mmsghdr *messages, unsigned count, int flags);
int stream_recv_messages(struct xts_sock *s, struct mmsghdr *messages, unsigned count, int flags, uint64_t deadline_ns);
int stream_option_set(struct xts_sock *s, int level, int option, const void **value, socklen_t *length);
int stream_option_get(const struct xts_sock *s, int level, int option, void *value, socklen_t *length);
int stream_ioctl(struct xts_sock *s, unsigned long request, void *argument);
void stream_option_was_set(struct xts_sock *s, int level, int option, const void *value, socklen_t length);
void stream_hint_was_set(struct xts_sock *s, bool on);
bool stream_packet_is_here(const struct xts_sock *s);
uint32_t stream_packet_take(struct xts_sock *s);
bool stream_flush(struct xts_sock *s);
void stream_drop(struct xts_sock *s);
void stream_record_fill(struct socket_record *b, const struct xts_sock *s);
void stream_record_apply(const struct socket_record *b, struct xts_sock *s);
uint32_t stream_events(struct xts_sock *s);
bool stream_receive(struct xts_sock *s, const struct xts_head *head, const struct xts_recv *m,
		    struct xts_rx_frame *frame);
void stream_share_before_fork(struct xts_sock *s);
int stream_give_up(struct xts_sock *s);
int stream_pass(struct xts_sock *s);

/* What the tables of both have. */
#define STREAM_ENTRIES \
	.type = SOCK_STREAM, .protocol = IPPROTO_TCP, .raises_sigpipe = true, .lingers = true, \
	.keeping_is_told = true, .has_kernel_half = true, .readable_on = EPOLLIN, \
	.changed_by_again = EPOLLIN | EPOLLOUT, .make = kind_has_nothing_to_do, .bind = stream_bind, \
	.connect = stream_connect, .listen = listener_listen, .accept = listener_accept, .peer = stream_peer, \
	.send_messages = stream_send_messages, .recv_messages = stream_recv_messages, .option_set = stream_option_set, \
	.option_get = stream_option_get, .need_proxy = kind_has_nothing_to_do, .option_was_set = stream_option_was_set, \
	.hint_was_set = stream_hint_was_set, .packet_is_here = stream_packet_is_here, .packet_offered = pdu_offered, \
	.packet_take = stream_packet_take, .packet_give_back = pdu_give_back, .receive = stream_receive, \
	.advertise = kind_advertises, .flush = stream_flush, .give_back = push_give_back, .drop = stream_drop, \
	.leave = kind_does_nothing, .seek_error = kind_has_nothing_to_do, .free = fault_forget, \
	.is_shared = kind_does_nothing, .share_sent = kind_does_nothing, .share_answered = kind_is_told, \
	.join = share_join, .before_fork = kind_has_none, .at_exit = kind_has_none, .forget = kind_does_nothing, \
	.give_up = stream_give_up, .resume = kind_does_nothing, .pass = stream_pass, .is_received = kind_does_nothing, \
	.record_fill = stream_record_fill, .record_apply = stream_record_apply

#endif
