/*
 * Options that are neither of the device's TCP and UDP nor of this library alone, and what is done with them. Every
 * option that a program sets is one of these:
 *
 * - The device carries it out, if it is on the proxy's list (dpu_proxy/native/connection/sockopt.c), and so do this
 *   library's option.c and datagram_option.c.
 * - HINT: it says how the kernel might do its work, and a program sees no difference. It is accepted, counted and told
 *   back, and nothing else happens.
 * - ANSWERED: it can only be read, and this host's kernel answers. KEPT: its first answer is the answer for good.
 * - HERE: this library carries it out.
 * - UNFORCED: it goes beyond a limit of this host. The device sets what its own limit allows.
 * - PREVENTS: the program needs what the option does, and no offloaded socket does it. Switched off (0), it is a hint.
 *
 * What this host's kernel thinks of a value is asked of itself (hint.c). REASONS.md is made from this list.
 */
#ifndef XTS_OPTION_TABLE_H
#define XTS_OPTION_TABLE_H

/* Not in the headers of every distribution we build on. */
#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif
#ifndef SO_PREFER_BUSY_POLL
#define SO_PREFER_BUSY_POLL 69
#endif
#ifndef SO_BUSY_POLL_BUDGET
#define SO_BUSY_POLL_BUDGET 70
#endif
#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif
#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif
#ifndef SO_RESERVE_MEM
#define SO_RESERVE_MEM 73
#endif
#ifndef SO_TXREHASH
#define SO_TXREHASH 74
#endif
#ifndef SO_RCVMARK
#define SO_RCVMARK 75
#endif
#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SO_RCVPRIORITY
#define SO_RCVPRIORITY 82
#endif
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif
#ifndef TCP_IS_MPTCP
#define TCP_IS_MPTCP 43
#endif
#ifndef SO_ORIGINAL_DST
#define SO_ORIGINAL_DST 80
#endif
#ifndef IP_RECVERR_RFC4884
#define IP_RECVERR_RFC4884 26
#endif
#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif
#ifndef IPV6_RECVERR_RFC4884
#define IPV6_RECVERR_RFC4884 31
#endif
#ifndef IPV6_FLOWINFO
#define IPV6_FLOWINFO 11
#endif
#ifndef IPV6_RECVFRAGSIZE
#define IPV6_RECVFRAGSIZE 77
#endif

/* level, option, sockets, way, what it is about */
#define XTS_OPTIONS(X) \
	/* processors and queues of a host, for the kernel's stack there */ \
	X(SOL_SOCKET, SO_BUSY_POLL, BOTH, HINT, "spin for packets; XTS_SPIN_US is about that here") \
	X(SOL_SOCKET, SO_PREFER_BUSY_POLL, BOTH, HINT, "the same") \
	X(SOL_SOCKET, SO_BUSY_POLL_BUDGET, BOTH, HINT, "the same") \
	X(SOL_SOCKET, SO_INCOMING_CPU, BOTH, HINT, "the processor that serves the socket's packets") \
	X(SOL_SOCKET, SO_TXREHASH, BOTH, HINT, "whether a retransmission may take another path") \
	X(SOL_SOCKET, SO_CNX_ADVICE, BOTH, HINT, "the program thinks that the path is bad") \
	X(SOL_SOCKET, SO_DEBUG, BOTH, HINT, "records in the kernel's log") \
	X(SOL_SOCKET, SO_RESERVE_MEM, BOTH, HINT, "memory that is set aside") \
	X(SOL_SOCKET, SO_BUF_LOCK, BOTH, HINT, "whether the kernel may change sizes of buffers") \
	X(SOL_SOCKET, SO_NO_CHECK, BOTH, HINT, "datagrams without a checksum; they have one") \
	X(IPPROTO_TCP, TCP_THIN_DUPACK, STREAM, HINT, "without effect in the kernel too") \
	X(SOL_SOCKET, SO_BSDCOMPAT, BOTH, HINT, "without effect in the kernel too") \
	/* what only Unix sockets have; a newer kernel refuses to set them */ \
	X(SOL_SOCKET, SO_PASSCRED, BOTH, HINT, "control messages of Unix sockets") \
	X(SOL_SOCKET, SO_PASSSEC, BOTH, HINT, "the same") \
	X(SOL_SOCKET, SO_PASSPIDFD, BOTH, HINT, "the same") \
	X(SOL_SOCKET, SO_PASSRIGHTS, BOTH, HINT, "the same") \
	/* control messages that a stream never has, in the kernel either */ \
	X(SOL_SOCKET, SO_RXQ_OVFL, STREAM, HINT, "a count of datagrams") \
	X(SOL_SOCKET, SO_RCVMARK, STREAM, HINT, "marks of datagrams") \
	X(SOL_SOCKET, SO_RCVPRIORITY, STREAM, HINT, "priorities of datagrams") \
	X(SOL_SOCKET, SO_WIFI_STATUS, STREAM, HINT, "whether datagrams have arrived") \
	X(SOL_SOCKET, SO_SELECT_ERR_QUEUE, STREAM, HINT, "how the error queue polls, which is empty") \
	X(SOL_SOCKET, SO_LOCK_FILTER, STREAM, HINT, "no filter can be set on it anyway") \
	X(IPPROTO_IP, IP_PKTINFO, STREAM, HINT, "control messages of datagrams") \
	X(IPPROTO_IP, IP_RECVTOS, STREAM, HINT, "the same") \
	X(IPPROTO_IP, IP_RECVTTL, STREAM, HINT, "the same") \
	X(IPPROTO_IP, IP_RECVOPTS, STREAM, HINT, "the same") \
	X(IPPROTO_IP, IP_RETOPTS, STREAM, HINT, "the same") \
	X(IPPROTO_IP, IP_RECVORIGDSTADDR, STREAM, HINT, "the same") \
	X(IPPROTO_IP, IP_CHECKSUM, STREAM, HINT, "the same") \
	X(IPPROTO_IP, IP_RECVFRAGSIZE, STREAM, HINT, "the same") \
	X(IPPROTO_IP, IP_PASSSEC, STREAM, HINT, "the same") \
	X(IPPROTO_IP, IP_RECVERR, STREAM, HINT, "an error queue, which stays empty") \
	X(IPPROTO_IP, IP_RECVERR_RFC4884, STREAM, HINT, "the same") \
	X(IPPROTO_IPV6, IPV6_RECVPKTINFO, STREAM, HINT, "control messages of datagrams") \
	X(IPPROTO_IPV6, IPV6_RECVHOPLIMIT, STREAM, HINT, "the same") \
	X(IPPROTO_IPV6, IPV6_RECVTCLASS, STREAM, HINT, "the same") \
	X(IPPROTO_IPV6, IPV6_RECVRTHDR, STREAM, HINT, "the same") \
	X(IPPROTO_IPV6, IPV6_RECVHOPOPTS, STREAM, HINT, "the same") \
	X(IPPROTO_IPV6, IPV6_RECVDSTOPTS, STREAM, HINT, "the same") \
	X(IPPROTO_IPV6, IPV6_RECVPATHMTU, STREAM, HINT, "the same") \
	X(IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, STREAM, HINT, "the same") \
	X(IPPROTO_IPV6, IPV6_2292PKTINFO, STREAM, HINT, "control messages of datagrams, as RFC 2292 has them") \
	X(IPPROTO_IPV6, IPV6_2292HOPLIMIT, STREAM, HINT, "the same") \
	X(IPPROTO_IPV6, IPV6_2292RTHDR, STREAM, HINT, "the same") \
	X(IPPROTO_IPV6, IPV6_2292HOPOPTS, STREAM, HINT, "the same") \
	X(IPPROTO_IPV6, IPV6_2292DSTOPTS, STREAM, HINT, "the same") \
	X(IPPROTO_IPV6, IPV6_FLOWINFO, STREAM, HINT, "control messages of datagrams, with flow labels") \
	X(IPPROTO_IPV6, IPV6_RECVFRAGSIZE, STREAM, HINT, "control messages of datagrams") \
	X(IPPROTO_IPV6, IPV6_RECVERR, STREAM, HINT, "an error queue, which stays empty") \
	X(IPPROTO_IPV6, IPV6_RECVERR_RFC4884, STREAM, HINT, "the same") \
	X(IPPROTO_IPV6, IPV6_DONTFRAG, STREAM, HINT, "datagrams that are too long") \
	/* multicast, which a stream never is */ \
	X(IPPROTO_IP, IP_MULTICAST_IF, STREAM, HINT, "where datagrams to groups leave") \
	X(IPPROTO_IP, IP_MULTICAST_TTL, STREAM, HINT, "how far they go") \
	X(IPPROTO_IP, IP_MULTICAST_LOOP, STREAM, HINT, "whether they come back") \
	X(IPPROTO_IP, IP_MULTICAST_ALL, STREAM, HINT, "of which groups they are received") \
	X(IPPROTO_IPV6, IPV6_MULTICAST_IF, STREAM, HINT, "where datagrams to groups leave") \
	X(IPPROTO_IPV6, IPV6_MULTICAST_HOPS, STREAM, HINT, "how far they go") \
	X(IPPROTO_IPV6, IPV6_MULTICAST_LOOP, STREAM, HINT, "whether they come back") \
	X(IPPROTO_IPV6, IPV6_MULTICAST_ALL, STREAM, HINT, "of which groups they are received") \
	/* addresses: where the device does not have one, bind() decides */ \
	X(IPPROTO_IP, IP_FREEBIND, BOTH, HINT, \
	  "binds to an address that nobody has; one that the device lacks is ADDRESS") \
	X(IPPROTO_IPV6, IPV6_FREEBIND, BOTH, HINT, "the same") \
	X(IPPROTO_IPV6, IPV6_ADDR_PREFERENCES, BOTH, HINT, "which source address is chosen; the device chooses") \
	X(IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, BOTH, HINT, "labels of packets; the device has its own setting") \
	/* what can only be read */ \
	X(SOL_SOCKET, SO_COOKIE, BOTH, KEPT, "a number that no other socket has") \
	X(SOL_SOCKET, SO_PEERCRED, BOTH, ANSWERED, "the other process; of a Unix socket") \
	X(SOL_SOCKET, SO_PEERGROUPS, BOTH, ANSWERED, "the same") \
	X(SOL_SOCKET, SO_PEERPIDFD, BOTH, ANSWERED, "the same") \
	X(SOL_SOCKET, SO_BPF_EXTENSIONS, BOTH, ANSWERED, "what filters of this host's kernel know") \
	X(IPPROTO_TCP, TCP_IS_MPTCP, STREAM, ANSWERED, "whether it is MPTCP, which it is not") \
	X(SOL_SOCKET, SO_MEMINFO, BOTH, ANSWERED, "memory of this host's kernel") \
	X(SOL_SOCKET, SO_INCOMING_NAPI_ID, BOTH, ANSWERED, "a receive queue of this host") \
	X(SOL_SOCKET, SO_NETNS_COOKIE, BOTH, ANSWERED, "the network namespace of the process") \
	X(IPPROTO_IP, SO_ORIGINAL_DST, BOTH, ANSWERED, "what this host's NAT has changed, which is nothing") \
	X(IPPROTO_IPV6, SO_ORIGINAL_DST, BOTH, ANSWERED, "the same") \
	X(IPPROTO_IPV6, IPV6_ADDRFORM, BOTH, ANSWERED, "changes the family; cannot be set") \
	/* what this library does itself */ \
	X(IPPROTO_TCP, TCP_INQ, STREAM, HERE, "the bytes that are left, as a control message") \
	X(SOL_SOCKET, SO_SELECT_ERR_QUEUE, DATAGRAM, HERE, "an error polls with POLLPRI too") \
	X(SOL_SOCKET, SO_SNDBUFFORCE, BOTH, UNFORCED, "SO_SNDBUF") \
	X(SOL_SOCKET, SO_RCVBUFFORCE, BOTH, UNFORCED, "SO_RCVBUF") \
	/* what the program could not do without */ \
	X(SOL_SOCKET, SO_MARK, BOTH, PREVENTS, "routes and firewall rules of this host") \
	X(SOL_SOCKET, SO_ZEROCOPY, BOTH, PREVENTS, "the program waits until its memory is free again") \
	X(SOL_SOCKET, SO_TIMESTAMP, STREAM, PREVENTS, "a stamp of each read, which the proxy cannot know") \
	X(SOL_SOCKET, SO_TIMESTAMPNS, STREAM, PREVENTS, "the same") \
	X(SOL_SOCKET, SO_TIMESTAMPING, STREAM, PREVENTS, "the same") \
	X(IPPROTO_IP, IP_TRANSPARENT, BOTH, PREVENTS, "addresses that are others'") \
	X(IPPROTO_IPV6, IPV6_TRANSPARENT, BOTH, PREVENTS, "the same") \
	X(IPPROTO_IP, IP_UNICAST_IF, BOTH, PREVENTS, "an interface of this host") \
	X(IPPROTO_IPV6, IPV6_UNICAST_IF, BOTH, PREVENTS, "the same") \
	X(IPPROTO_IP, IP_OPTIONS, BOTH, PREVENTS, "a route that goes around policy") \
	X(IPPROTO_IP, IP_LOCAL_PORT_RANGE, BOTH, PREVENTS, "ports of this host") \
	X(IPPROTO_IP, IP_RECVORIGDSTADDR, DATAGRAM, PREVENTS, "where this host's NAT had it from") \
	X(IPPROTO_IP, IP_RECVOPTS, DATAGRAM, PREVENTS, "options of each packet") \
	X(IPPROTO_IP, IP_RETOPTS, DATAGRAM, PREVENTS, "the same") \
	X(IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, DATAGRAM, PREVENTS, "where this host's NAT had it from")

#endif
