"""The metrics of the proxy: their names, what they mean, and which figures they are made of.

Figures have the names of the fields of the native structs. There are no labels per connection, so that the number of
series is bounded by workers, queues and tenants.
"""

from __future__ import annotations

from xts_messages.metric import counter, counter_by, counter_each, gauge, gauge_each, histogram

#: Of the supervisor (Supervisor.figures()), without labels.
PROXY = (
    gauge("xts_proxy_start_time_seconds", "When the proxy started, in seconds of Unix time.", "started_at"),
    gauge("xts_proxy_draining", "1 while the proxy is stopping and lets connections end.", "draining"),
    counter_each("xts_proxy_reloads", "Reloads of the configuration, by result.", "result", "reloads"),
)
INFO = (gauge("xts_proxy_info", "Always 1; labels have the proxy's version and its kind of queue.", "one"),)
SHM = (
    counter_by(
        "xts_proxy_attaches",
        "Processes of this machine that asked for a queue (shm), by result.",
        "result",
        ok="attaches",
        refused="attaches_refused",
    ),
)
#: Of the XDP program, which counts for the interface.
STEER = (
    counter_by(
        "xts_steer_frames",
        "Frames that the XDP program saw: admitted to a queue's socket; passed to the device's kernel, as they are no "
        "messages; or dropped: foreign (of another station than the peer), malformed (shorter than a message's head), "
        "no_socket (for a queue to which nobody is attached), others_dropped (no messages, on an exclusive interface).",
        "verdict",
        admitted="admitted",
        passed="passed",
        foreign="foreign",
        malformed="malformed",
        no_socket="no_socket",
        others_dropped="others_dropped",
    ),
)

#: Of each worker, whether it answers or not (Heartbeat.figures()).
PROGRESS = (
    gauge("xts_worker_stalled_seconds", "For how long a worker has not ended a round; 0: it does.", "stands_s"),
    counter("xts_worker_stalls", "How often a worker has not ended a round for a second.", "reports"),
)

#: Of each worker (struct xts_worker_stats).
WORKER = (
    counter("xts_worker_rounds", "Rounds of a worker: receive from its queues, serve, send.", "rounds"),
    histogram(
        "xts_worker_round_cpu_seconds",
        "CPU time of a worker's rounds with work: at most what a queue waits for its turn. "
        "Rounds are counted together until 100 microseconds have passed.",
        "round_cpu",
    ),
    histogram(
        "xts_worker_turn_delay_seconds",
        "For how long messages of a queue that had been idle may have waited for the worker's turn, by wall clock: "
        "since the worker last looked there. What others are made to wait by whoever keeps the worker busy.",
        "turn_delay",
    ),
    histogram("xts_connect_seconds", "How long TCP took to connect, of connects that succeeded.", "connect_time"),
    histogram(
        "xts_handshake_seconds",
        "How long the handshakes of a connection's pushed protocols took, of those that succeeded.",
        "handshake_time",
    ),
    histogram(
        "xts_request_gap_seconds",
        "Time between what a host sends on one connection; what is received in one batch counts once.",
        "request_gap",
    ),
    counter("xts_worker_sleeps", "How often a worker went to sleep.", "sleeps"),
    counter("xts_worker_spins", "Rounds without work in which a worker stayed awake (proxy.spin_us).", "spins"),
    counter(
        "xts_worker_yields",
        "Of these, rounds in which others could have the core first: while no handshake computes.",
        "yields",
    ),
    counter(
        "xts_worker_timer_looks",
        "Looks by a timer for what comes without an event, such as the end of a close that lingers.",
        "looks",
    ),
    counter(
        "xts_worker_common_locks",
        "Mutexes of all workers that a worker has taken: for sockets that change hands, not for messages.",
        "common_locks",
    ),
    gauge("xts_worker_channels", "Queues of processes of hosts that a worker serves.", "channels"),
    gauge("xts_worker_channels_up", "Of these, those whose link is up.", "channels_up"),
    gauge("xts_relay_processes", "Processes that come over the queue of a relay (proxy.relayed_max).", "relayed"),
    counter(
        "xts_relay_refusals",
        "Processes behind a relay that were refused: relayed_max were there, or no memory.",
        "relayed_refused",
    ),
    counter_by(
        "xts_relay_dropped_frames",
        "Frames of a relay that were dropped: of a process that it has not announced (unknown), or no frames or of a "
        "process that broke the rules (invalid).",
        "reason",
        unknown="relayed_unknown",
        invalid="relayed_dropped",
    ),
    gauge("xts_connections", "TCP sockets that are no listeners.", "connections"),
    gauge("xts_listeners", "TCP sockets that listen.", "listeners"),
    gauge("xts_shared_listeners", "Of the listeners, those that several processes may share.", "shared_listeners"),
    gauge("xts_kept_listeners", "Listeners that no process holds now, kept for one that may join.", "kept_listeners"),
    gauge("xts_parked_connections", "Connections on their way from one process to another.", "parked_connections"),
    counter(
        "xts_connection_log_lost",
        "Records of connections that did not get into proxy.connection_log, as too many ended at once.",
        "closed_lost",
    ),
    gauge("xts_orphans", "Connections that a process has left and whose data peers have not taken yet.", "orphans"),
    gauge("xts_datagram_sockets", "Datagram sockets, which are not among the connections.", "datagram_sockets"),
    counter_by(
        "xts_connects",
        "Connections that hosts wanted to make, by result.",
        "result",
        ok="connects_ok",
        failed="connects_failed",
    ),
    counter("xts_accepts", "Connections accepted by listeners.", "accepts"),
    counter("xts_connection_failures", "Connections that failed, by a peer's reset or another error.", "resets"),
    counter("xts_connections_given_back", "Accepted connections that one process gave back for another.", "given_back"),
    counter("xts_connections_parked", "Connections that a process gave up for another one.", "parks"),
    counter("xts_connections_claimed", "Connections that a process took over from another one.", "claims"),
    counter("xts_connections_unclaimed", "Parked connections that were reset: no process took them over.", "unclaimed"),
    counter("xts_orphans_cut", "Orphans that were reset because their tenant's budget was full.", "orphans_cut"),
    counter_by(
        "xts_refusals",
        "What hosts were refused: connects, binds and listens by the policy, and anything by a limit.",
        "reason",
        policy="refused_policy",
        limit="refused_limit",
    ),
    counter("xts_tcp_sent_bytes", "Bytes sent to TCP.", "sent_bytes"),
    counter("xts_tcp_received_bytes", "Bytes received from TCP.", "received_bytes"),
    counter("xts_tcp_writes", "Writes to TCP that took bytes.", "writes"),
    counter("xts_tcp_gathered_messages", "Messages whose data was gathered for a write.", "gathered_messages"),
    counter(
        "xts_tcp_spilled_bytes",
        "Bytes that TCP did not take at once and that went to a spill buffer.",
        "spilled_bytes",
    ),
    gauge("xts_spill_bytes", "Bytes that wait in spill buffers now.", "spill_bytes"),
    gauge("xts_window_bytes", "Bytes of windows that are granted to hosts now.", "window_bytes"),
    counter(
        "xts_datagrams_sent",
        "Datagrams of hosts that the device's kernel has taken; a train of segments counts as one.",
        "datagrams_sent",
    ),
    counter(
        "xts_datagrams_received",
        "Datagrams taken from the device's kernel for hosts; a train of GRO counts as one.",
        "datagrams_received",
    ),
    counter(
        "xts_datagrams_refused",
        "Datagrams of hosts that policy or the kernel refused, or that waited when a host left.",
        "datagrams_refused",
    ),
    counter(
        "xts_datagrams_dropped",
        "Datagrams from the network dropped before the proxy took them: SO_RCVBUF was full, or by a filter.",
        "datagrams_dropped",
    ),
    counter(
        "xts_datagram_copies",
        "Of xts_datagrams_received: those of groups that crossed the queue in one copy with another socket's.",
        "datagram_copies",
    ),
    gauge(
        "xts_datagrams_waiting",
        "Datagrams of hosts that wait in the proxy until the device's kernel has room.",
        "datagrams_waiting",
    ),
    gauge("xts_name_lookups_active", "Names that are being looked up for hosts now.", "lookups"),
    counter("xts_name_lookups", "Names that hosts wanted to have looked up.", "names_asked"),
    counter_by(
        "xts_name_results",
        "What became of them: answered by a name server, failed (none gave an answer that could be passed on), or "
        "denied by the policy of names.",
        "result",
        answered="names_answered",
        failed="names_failed",
        denied="names_denied",
    ),
    counter(
        "xts_name_wrong_answers",
        "Datagrams and messages from name servers that were no answer to the query.",
        "names_wrong",
    ),
    counter_by(
        "xts_host_errors",
        "Messages of hosts that are malformed or not allowed (message), or about sockets that they do not have "
        "(identifier).",
        "kind",
        message="bad_messages",
        identifier="bad_identifiers",
    ),
    counter("xts_link_failures", "Links that ended with an error.", "link_failures"),
    counter("xts_links_opened", "Links that were opened.", "hellos"),
    counter("xts_links_closed", "Links that ended because their process ended.", "goodbyes"),
    gauge("xts_ulp_bytes", "Bytes that pushed protocols keep now, in addition to the windows.", "ulp_bytes"),
    gauge("xts_ulp_handshakes_active", "Handshakes of pushed protocols that are under way.", "ulp_handshakes"),
    counter_by(
        "xts_ulp_handshakes",
        "Handshakes of pushed protocols, by result.",
        "result",
        ok="ulp_handshakes_ok",
        failed="ulp_handshakes_failed",
    ),
    counter_each("xts_ulp_pushes", "Protocols pushed onto connections, by protocol.", "ulp", "ulp_pushed"),
    counter_each("xts_ulp_faults", "Faults that pushed protocols found, by kind of fault.", "fault", "ulp_faults"),
)

#: Of each channel, which is a queue's link to one process (struct xts_channel_stats). They start at 0 when another
#: process attaches to the queue, as counters may.
CHANNEL = (
    gauge("xts_channel_up", "1 if the link of a queue is up.", "up"),
    gauge("xts_channel_connections", "TCP sockets over a queue that are no listeners.", "connections"),
    gauge("xts_channel_listeners", "Listeners over a queue.", "listeners"),
    gauge("xts_channel_frame_credits", "Frames that the proxy may send to the host now.", "frame_credits"),
    gauge("xts_channel_window_bytes", "Bytes of windows that are granted to the process of a queue.", "window_bytes"),
    gauge("xts_channel_spill_bytes", "Bytes that wait in spill buffers of a queue's connections.", "spill_bytes"),
    gauge("xts_channel_ulp_bytes", "Bytes that pushed protocols of a queue's connections keep.", "ulp_bytes"),
    counter("xts_link_sent_frames", "Sequenced frames sent to the host.", "link.sent_frames"),
    counter("xts_link_received_frames", "Sequenced frames received from the host.", "link.received_frames"),
    counter("xts_link_sent_acks", "Frames sent that only acknowledge.", "link.sent_acks"),
    counter("xts_link_received_acks", "Frames received that only acknowledge.", "link.received_acks"),
    counter_by(
        "xts_link_dropped_frames",
        "Frames of a host that were dropped: early (the link was not up yet), foreign (their EtherType or source "
        "address), stale (GOODBYE and HELLO_ACK of another epoch), malformed (too short, of unknown type or of the "
        "wrong direction).",
        "reason",
        early="link.dropped_early",
        foreign="link.dropped_foreign",
        stale="link.dropped_stale",
        malformed="link.malformed",
    ),
    counter_by(
        "xts_link_errors",
        "What ended a link: frames out of sequence; or frames beyond the window, or acknowledgements of frames never "
        "sent (credit).",
        "kind",
        sequence="link.sequence_errors",
        credit="link.credit_errors",
    ),
    counter("xts_link_hellos", "HELLOs received.", "link.hellos"),
    counter("xts_queue_sent_frames", "Frames put into a queue.", "queue.tx_frames"),
    counter("xts_queue_sent_bytes", "Bytes of these frames.", "queue.tx_bytes"),
    counter("xts_queue_received_frames", "Frames taken from a queue.", "queue.rx_frames"),
    counter("xts_queue_received_bytes", "Bytes of these frames.", "queue.rx_bytes"),
    counter("xts_queue_kicks", "Doorbells rung, or sendto() calls on an AF_XDP socket.", "queue.kicks"),
    counter("xts_queue_kick_retries", "Kicks that had to be repeated (EAGAIN, ENOBUFS).", "queue.kicks_again"),
    counter_by(
        "xts_queue_lost_frames",
        "Frames that were lost in a queue: by the kernel on sending (sent_busy, EBUSY), by the kernel for lack of a "
        "free buffer (no_buffer, AF_XDP), or with descriptors out of bounds, too many pieces or too many bytes "
        "(invalid).",
        "reason",
        sent_busy="queue.tx_lost",
        no_buffer="queue.rx_dropped",
        invalid="queue.rx_invalid",
    ),
    counter("xts_queue_no_slot", "How often no slot for sending was free.", "queue.tx_no_slot"),
    counter("xts_queue_sleeps", "How often the worker asked this queue to wake it.", "queue.sleeps"),
    counter("xts_queue_wakeups", "How often this queue woke the worker.", "queue.wakeups"),
)

#: Of each tenant (Account.figures(), see metrics.tenant_row()).
TENANT = (
    counter("xts_tenant_cpu_seconds", "Time that workers spent for a tenant.", "cpu_ns", ns=True),
    gauge_each("xts_tenant_used", "What a tenant uses now of what is counted, by resource.", "resource", "used"),
    gauge_each("xts_tenant_used_bytes", "What a tenant uses now of memory, by resource.", "resource", "used_bytes"),
    counter_each(
        "xts_tenant_refusals", "What a tenant was refused because of its limit, by resource.", "resource", "refused"
    ),
    gauge("xts_tenant_descriptors", "Descriptors that a tenant uses.", "descriptors"),
    gauge("xts_tenant_guaranteed_descriptors", "Descriptors that a tenant is guaranteed.", "descriptors_guaranteed"),
    gauge("xts_tenant_memory_bytes", "Memory of the proxy that a tenant uses.", "memory"),
    gauge("xts_tenant_guaranteed_memory_bytes", "Memory that a tenant is guaranteed.", "memory_guaranteed"),
    gauge(
        "xts_tenant_guaranteed_local_ports",
        "Ports that a tenant has for its own, to connect from. 0: they are not divided.",
        "local_ports_guaranteed",
    ),
    counter_each(
        "xts_tenant_pool_refusals",
        "What a tenant was refused above its guarantee, as others had the rest, by pool.",
        "pool",
        "pool_refused",
    ),
)

#: Of each filter of the operator's that a host has named (struct xts_filter_totals).
FILTER = (
    gauge("xts_filter_sockets", "Datagram sockets that have an operator's filter now.", "sockets"),
    counter(
        "xts_filter_socket_drops",
        "Datagrams that the device's kernel dropped at sockets while they had an operator's filter: by it, or because "
        "SO_RCVBUF was full, which the kernel counts together. Counted when the next datagram passes, or when the "
        "socket closes or gets another filter.",
        "dropped",
    ),
)

#: struct xts_tls_counts.
TLS = (
    counter_by(
        "xts_tls_handshakes",
        "TLS handshakes that succeeded, by the proxy's role.",
        "role",
        client="client_handshakes",
        server="server_handshakes",
    ),
    counter("xts_tls_resumed_handshakes", "Handshakes that resumed an earlier session.", "resumed"),
    counter_by(
        "xts_tls_encrypting_connections",
        "Connections by who encrypts: OpenSSL in the proxy (user), the device's kernel, or a network card (device).",
        "by",
        user="sent_by_user",
        kernel="sent_by_kernel",
        device="sent_by_device",
    ),
    counter_by(
        "xts_tls_decrypting_connections",
        "Connections by who decrypts: OpenSSL in the proxy (user), the device's kernel, or a network card (device).",
        "by",
        user="received_by_user",
        kernel="received_by_kernel",
        device="received_by_device",
    ),
    counter_by(
        "xts_tls_fallbacks",
        "Why not the best encrypts: no_kernel (the kernel has no TLS), configured, stack (TLS is not next to TCP), "
        "refused (kernel or OpenSSL lack this cipher, version or direction), no_device (the network card does no TLS), "
        "keys_change (keys of TLS 1.3 may have to change).",
        "reason",
        no_kernel="fallback_no_kernel",
        configured="fallback_configured",
        stack="fallback_stack",
        refused="fallback_refused",
        no_device="fallback_no_device",
        keys_change="fallback_keys_change",
    ),
    counter("xts_tls_key_updates", "Changes of keys that the proxy began.", "key_updates"),
)

#: Title of a part of the reference -> its metrics.
PARTS = {
    "The proxy": (*INFO, *PROXY, *SHM),
    "Workers": (*PROGRESS, *WORKER),
    "Queues and their links": CHANNEL,
    "Tenants": TENANT,
    "Filters": FILTER,
    "TLS": TLS,
    "The XDP program": STEER,
}
#: Of the rows of each part.
LABELS: dict[str, tuple[str, ...]] = {
    "The proxy": (),
    "Workers": ("worker",),
    "Queues and their links": ("queue", "worker"),
    "Tenants": ("tenant",),
    "Filters": ("filter",),
    "TLS": (),
    "The XDP program": (),
}
